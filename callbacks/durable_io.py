"""How a checkpoint in one file reaches the disk: beside, synced, renamed; whoever asks for it to be saved."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from cod_lightning.models.checkpoint_check import sync
from cod_lightning.models.checkpoint_folder import UNFINISHED


class DurableIO(TorchCheckpointIO):
    """Lightning's own collects the file in memory, writes it to TMPDIR and moves it, without a sync."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None) -> None:
        """The file of before, or the new one, whatever happens in between. Raises `OSError` where there is no room."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f"{target.name}{UNFINISHED}")
        try:
            with beside.open("wb") as file:  # torch given a path hides the reason of a failure
                torch.save(checkpoint, file)
            sync(beside)
            beside.replace(target)
            sync(target.parent)
        except Exception:
            beside.unlink(missing_ok=True)
            raise
