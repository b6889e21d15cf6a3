"""The resolved config of a run, beside its results."""

from pathlib import Path

import lightning as L
from lightning.pytorch.callbacks import Callback


class RunConfig(Callback):
    """Writes `config.yaml`, which `--config` takes again."""

    def __init__(self, text: str, root: Path) -> None:
        self.text, self.root = text, root

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Once, before anything runs."""
        if trainer.is_global_zero and stage == "fit":
            self.root.mkdir(parents=True, exist_ok=True)
            (self.root / "config.yaml").write_text(self.text)
