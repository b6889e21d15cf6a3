"""Checkpoints of a run: `checkpoints/last.ckpt`, written after every validation and when the run is broken off."""

from pathlib import Path

from lightning.pytorch.callbacks import ModelCheckpoint


class RunCheckpoint(ModelCheckpoint):
    """Keeps the newest state only; `--ckpt_path .../last.ckpt` goes on from it."""

    def __init__(self, root: Path) -> None:
        super().__init__(
            dirpath=root / "checkpoints",
            filename="last",
            save_top_k=1,
            monitor=None,
            enable_version_counter=False,
            save_on_train_epoch_end=True,
            save_on_exception=True,
        )
