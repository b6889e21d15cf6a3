"""Checkpoints of a run, each on disk as a whole before it gets its name, and the run's config in and beside them."""

import shutil
from pathlib import Path
from typing import Any

import lightning as L
import yaml
from lightning.pytorch.callbacks import Callback, Checkpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch.distributed.checkpoint.api import CheckpointException

from cod_lightning.cache import digests
from cod_lightning.callbacks.runner import follow
from cod_lightning.checkpoints.checkpoint import DurableIO, seal, see_readable
from cod_lightning.checkpoints.folder import CheckpointFolder, num_updates_of, remove
from cod_lightning.errors import SaveFailed, in_a_line
from cod_lightning.files import sync, write_whole
from cod_lightning.ranks import gathered
from cod_lightning.rollout.runner import RolloutObserver

_VALIDATION = "epoch_loop.val_loop.batch_progress"
_BATCHES = "epoch_loop.batch_progress"
_OF_A_RUN = (
    "evaluation.json",
    "evaluation_packs.parquet",
    "report.html",
    "tensorboard/events.out.tfevents.*",
    "lifecycles/train*",
    "lifecycles/validation*",
    "lifecycles/test_*",
    "lifecycles/faults*",
)
"""What a run leaves in its folder, beside its checkpoints, that would be read as another one's that begins there."""


class RunCheckpoint(Checkpoint, RolloutObserver):
    """Keeps the newest states in `checkpoints/`; `--ckpt_path last` goes on from the newest that is whole, exactly.

    Every rank takes part in a save; only rank 0 names, links and removes files.

    Args:
        root: Folder of the run.
        every: Optimizer updates between two checkpoints; null: one after every validation.
        keep: Newest checkpoints that are kept; null keeps all.
    """

    def __init__(self, root: Path, every: int | None = None, keep: int | None = 2) -> None:
        self.folder = CheckpointFolder(root / "checkpoints")
        self.every, self.keep = every, keep
        self._validated_at: int | None = None
        self._saved_at: int | None = None
        """Updates of the newest checkpoint of this run, also if it was resumed from it."""
        self._others: set[Path] = set()
        """Checkpoints of a run that this one overwrites, or of updates that it does again; they go once there is a better one."""
        self._left = [path for name in _OF_A_RUN for path in root.glob(name) if path.is_file()]
        """What lies there already; of another run it goes when this one begins, as its config does."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Save durably, unless the user has chosen a plugin that saves otherwise."""
        if type(trainer.strategy.checkpoint_io) is TorchCheckpointIO:
            trainer.strategy.checkpoint_io = DurableIO()

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Look at the run between any two updates.

        Lightning's own way saves before an update's metrics are logged, and expects the weights of before the update.
        """
        self._trainer = trainer
        follow(trainer, self)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The folder is this run's from here on; checkpoints of another one stay until there is one of its own."""
        origin = trainer.ckpt_path  # known from here on
        own = origin is not None and self.folder.has(origin)
        if not own and trainer.is_global_zero:
            remove(self._left)
        trainer.strategy.barrier()
        self._saved_at = trainer.global_step if own else None
        self._others = {p for p in self.folder.kept() if not own or num_updates_of(p) > trainer.global_step}

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Rows of metrics go by updates; Lightning counts one more for a run that goes on behind a validation."""
        trainer.fit_loop.epoch_loop._batches_that_stepped = trainer.global_step

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.save(trainer)

    def save(self, trainer: L.Trainer) -> None:
        """Save the state of now, unless it has been. Raises `SaveFailed` on every rank if one of them could not write."""
        if self._saved_at == trainer.global_step:
            return
        if trainer.is_global_zero:
            self.folder.clear()
        trainer.strategy.barrier()
        self._write(trainer)
        self._saved_at = trainer.global_step

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """A checkpoint of the same update, from before the validation, is not the state of now."""
        if not trainer.sanity_checking:
            self._saved_at, self._validated_at = None, trainer.global_step

    def update_finished(self) -> None:
        updates = self._trainer.global_step
        if self._validated_at == updates if self.every is None else updates % self.every == 0:
            self.save(self._trainer)

    def _write(self, trainer: L.Trainer) -> None:
        """The collective part; a failure of one rank becomes one of all, so that none waits for another."""
        path = self.folder.unfinished(trainer.global_step)
        content = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        if trainer.validating:
            _validate_again(content)
        _epoch_goes_on(content, trainer.num_training_batches)
        failure, shards = None, {}
        try:
            for logger in trainer.loggers:  # a run that is killed later goes on without a gap
                logger.save()
            see_readable(content)
            trainer.strategy.save_checkpoint(content, path)
            if path.is_dir():
                shards = digests(path.glob(f"__{trainer.global_rank}_*"))
        except (OSError, RuntimeError, CheckpointException) as error:
            failure = error
        everyone = gathered((None if failure is None else self._message(failure), shards))
        messages = [text for text, _ in everyone if text]
        if not messages and trainer.is_global_zero:
            try:
                self._finish(trainer.global_step, {name: digest for _, of in everyone for name, digest in of.items()})
            except OSError as error:
                failure, messages = error, [self._message(error)]
        messages = trainer.strategy.broadcast(messages)
        if messages:
            if trainer.is_global_zero:
                self.folder.clear()
            raise SaveFailed(messages[0]) from failure

    def _finish(self, num_updates: int, shards: dict[str, str]) -> None:
        path = self.folder.unfinished(num_updates)
        if path.is_dir():
            seal(path, shards)
        else:
            sync(path)
        path = self.folder.finish(num_updates)
        remove(self._others - {path})
        self._others = set()
        if self.keep is not None:
            remove(self.folder.kept()[self.keep :])

    def _message(self, error: BaseException) -> str:
        """What a person can act on; torch drops the reason of a full disk on its way from another rank."""
        said, free = f"{type(error).__name__}: {in_a_line(error, 300)}", shutil.disk_usage(self.folder.path).free
        return (
            f"no checkpoint could be written in {self.folder.path} ({said}), where {free:,} bytes are free. Those of before "
            "are whole. Make room, or lower keep_checkpoints; then go on with --ckpt_path auto."
        )


class RunConfig(Callback):
    """Writes `config.yaml`, which `--config` takes again, when training begins.

    Checkpoints hold the same, for a run that goes on to be compared with.
    """

    def __init__(self, text: str, root: Path) -> None:
        self.text, self.root = text, root

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.is_global_zero:
            write_whole(self.root / "config.yaml", self.text)

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        kept = {"config": yaml.safe_load(self.text), "num_processes": trainer.world_size}
        checkpoint["run_config"] = kept | {"vocabulary": pl_module.vocabulary}


def _validate_again(checkpoint: dict[str, Any]) -> None:
    """Make the run that resumes from this checkpoint, saved while a validation was abandoned, begin with that validation.

    Lightning goes back to a validation whose counts show that a batch was begun and not finished; where the counts say that
    none was begun it takes the validation for done (`_EvaluationLoop.update_restart_stage`, Lightning 2.6).
    """
    counts = checkpoint["loops"]["fit_loop"][_VALIDATION]
    total = counts["total"]
    total["ready"] = total["started"] = total["processed"] + 1
    total["completed"] = total["processed"]
    counts["current"] = dict.fromkeys(counts["current"], 0)
    counts["is_last_batch"] = False


def _epoch_goes_on(checkpoint: dict[str, Any], num_batches: float) -> None:
    """Make the run that resumes from this checkpoint go on with an epoch that `max_steps`, `max_time` or a budget ended early.

    Lightning takes every epoch whose end was reached for a whole one.
    """
    fit_loop = checkpoint["loops"]["fit_loop"]
    total, current = (fit_loop["epoch_progress"][name] for name in ("total", "current"))
    if total["processed"] == total["started"] and fit_loop[_BATCHES]["current"]["ready"] < num_batches:
        total["processed"] -= 1
        current["processed"] -= 1
