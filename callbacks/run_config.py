"""The resolved config of a run, beside its results and in its checkpoints."""

from pathlib import Path
from typing import Any

import lightning as L
import yaml
from lightning.pytorch.callbacks import Callback


class RunConfig(Callback):
    """Writes `config.yaml`, which `--config` takes again; checkpoints hold the same, for a run that goes on to be compared with."""

    def __init__(self, text: str, root: Path) -> None:
        self.text, self.root = text, root

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Once, before anything runs."""
        if trainer.is_global_zero and stage == "fit":
            self.root.mkdir(parents=True, exist_ok=True)
            (self.root / "config.yaml").write_text(self.text)

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Plain containers, which safe loading takes."""
        checkpoint["run_config"] = {"config": yaml.safe_load(self.text), "num_processes": trainer.world_size}
