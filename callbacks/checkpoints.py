"""Checkpoints of a run: `checkpoints/last.ckpt`, written after every validation, or every so many updates."""

from pathlib import Path

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint


class RunCheckpoint(ModelCheckpoint):
    """Keeps the newest state only; `--ckpt_path last` goes on from it, exactly.

    Args:
        root: Folder of the run.
        every: Optimizer updates between two checkpoints; null: one after every validation.
    """

    def __init__(self, root: Path, every: int | None = None) -> None:
        self.root = root
        super().__init__(
            dirpath=root / "checkpoints",
            filename="last",
            save_top_k=1,
            monitor=None,
            enable_version_counter=False,
            save_on_train_epoch_end=True,
        )
        self.every = every

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Look at the run between any two updates.

        Lightning's own way saves before an update's metrics are logged, and expects the weights of before the update.
        """
        stream = getattr(getattr(trainer, "datamodule", None), "stream", None)
        if self.every is not None and stream is not None:
            stream.listeners.append(lambda: self._between(trainer))

    def _between(self, trainer: L.Trainer) -> None:
        assert self.every is not None
        if trainer.global_step % self.every == 0:
            self._save_checkpoint(trainer, str(self.root / "checkpoints" / "last.ckpt"))

    def _save_checkpoint(self, trainer: L.Trainer, filepath: str) -> None:
        """With the metrics up to here, so that a run which is killed later goes on without a gap."""
        for logger in trainer.loggers:
            logger.save()
        super()._save_checkpoint(trainer, filepath)
