"""What a run keeps, and what it does where a checkpoint cannot be written."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers.logger import DummyLogger

from cod_lightning.callbacks.checkpoints import RunCheckpoint
from cod_lightning.checkpoints.checkpoint import damage
from cod_lightning.errors import SaveFailed
from tests.cases import each
from tests.small_fit import quiet_trainer


class Line(L.LightningModule):
    """One parameter, one update an epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = torch.nn.Parameter(torch.zeros(()))

    def training_step(self, batch, batch_idx):
        return (self.slope - 1) ** 2

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def train_dataloader(self):
        return [torch.zeros(1)]


def keeping(kept: RunCheckpoint, **options) -> L.Trainer:
    return quiet_trainer(kept.folder.path.parent, kept, enable_checkpointing=True, **options)


def fit(
    root: Path, epochs: int, keep: int | None = 2, ckpt_path: Path | None = None, module: Line | None = None, **more
) -> RunCheckpoint:
    kept = RunCheckpoint(root, keep=keep)
    keeping(kept, max_epochs=epochs, **more).fit(module or Line(), ckpt_path=ckpt_path)
    return kept


def names(kept: RunCheckpoint) -> list[str]:
    return sorted(path.name for path in kept.folder.path.iterdir())


@each(("keep", "updates"), [(1, [4]), (2, [3, 4]), (None, [1, 2, 3, 4])])
def test_the_newest_checkpoints_are_kept(keep, updates, tmp_path):
    kept = fit(tmp_path, 4, keep)
    assert names(kept) == ["last.ckpt", *(f"update-{n:08}.ckpt" for n in updates)]
    assert torch.load(kept.folder.last, weights_only=True)["global_step"] == 4


def test_a_run_that_is_overwritten_takes_what_it_left_with_it(tmp_path):
    """Its evaluation, its curves, and the lifecycles of a rank that the new run has not."""
    fit(tmp_path, 1)
    of_lives = (
        f"lifecycles/{name}" for name in ("test_held_out_trained.jsonl", "train.rank1.jsonl", "faults.rank1.log")
    )
    left = [
        tmp_path / name for name in ("evaluation.json", "report.html", "tensorboard/events.out.tfevents.1", *of_lives)
    ]
    kept = [tmp_path / "lifecycles" / name for name in ("train.jsonl", "notes.txt")]
    for path in (*left, *kept):
        path.parent.mkdir(exist_ok=True)
        path.write_text("of the run of before")
    fit(tmp_path, 2, ckpt_path=tmp_path / "checkpoints" / "last.ckpt")
    assert all(path.exists() for path in (*left, *kept))  # the same run goes on

    class Killed(Line):
        def training_step(self, batch, batch_idx):
            kept[0].write_text("of this run")
            raise KeyError("killed before its first checkpoint")

    with pytest.raises(KeyError):
        fit(tmp_path, 1, module=Killed())
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in left)
    assert names(RunCheckpoint(tmp_path)) == ["last.ckpt", "update-00000001.ckpt", "update-00000002.ckpt"]


def test_a_state_is_saved_once_and_again_after_a_validation_which_changes_it(tmp_path, monkeypatch):
    kept, written = RunCheckpoint(tmp_path), []
    monkeypatch.setattr(kept, "_write", lambda trainer: written.append(trainer.global_step))
    strategy = SimpleNamespace(barrier=lambda: None)
    trainer: Any = SimpleNamespace(
        global_step=4, loggers=[], is_global_zero=True, strategy=strategy, sanity_checking=False
    )
    kept.save(trainer)
    kept.save(trainer)
    assert written == [4]
    kept.on_validation_end(trainer, Line())
    kept.save(trainer)
    assert written == [4, 4]


def test_a_run_that_overwrites_another_removes_its_checkpoints_and_one_that_goes_on_from_an_older_one_drops_the_newer(
    tmp_path,
):
    fit(tmp_path, 4)
    assert names(fit(tmp_path, 1)) == ["last.ckpt", "update-00000001.ckpt"]
    kept = fit(tmp_path, 3, None)
    again = fit(tmp_path, 2, None, ckpt_path=kept.folder.named(1))
    assert names(again) == ["last.ckpt", "update-00000001.ckpt", "update-00000002.ckpt"]


def test_a_checkpoint_that_found_no_room_leaves_those_of_before(tmp_path):
    """On a real file system of 2 MB, where it can be mounted."""
    small = tmp_path / "small"
    small.mkdir()
    if os.geteuid() or os.system(f"mount -t tmpfs -o size=2m tmpfs {small} 2>/dev/null"):
        pytest.skip("no file system can be mounted here")
    try:
        kept = fit(small, 1)
        (small / "filler").write_bytes(bytes(2 * 2**20 - 40_000))
        with pytest.raises(SaveFailed, match=r"no checkpoint .* in .*small/checkpoints .*, where \d+,\d\d\d bytes"):
            _fit_large(small)
        assert names(kept) == ["last.ckpt", "update-00000001.ckpt"]
        assert damage(kept.folder.last) is None
    finally:
        os.system(f"umount {small}")


def test_rows_of_metrics_that_found_no_room_fail_the_checkpoint_that_counts_on_them(tmp_path):
    class Full(DummyLogger):
        is_full = False

        def save(self):
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")

        def finalize(self, status): ...

    class Filling(Line):
        def on_train_epoch_end(self):
            self.logger.is_full = True

    with pytest.raises(SaveFailed, match=r"no checkpoint could be written in .*No space left"):
        fit(tmp_path, 1, module=Filling(), logger=Full(), log_every_n_steps=1)
    assert names(RunCheckpoint(tmp_path)) == []


def _fit_large(root: Path) -> None:
    class Large(Line):
        def __init__(self) -> None:
            super().__init__()
            self.much = torch.nn.Parameter(torch.zeros(100_000))

    keeping(RunCheckpoint(root)).fit(Large())
