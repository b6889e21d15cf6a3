"""How checkpoints reach and leave the disk through Lightning: a single file durably, shards where nothing is sharded."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.checkpoints.folder import UNFINISHED
from cod_lightning.whole_file import sync


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


class ShardReader(TorchCheckpointIO):
    """Lightning's reader of single files; a folder's weights are put together. Of an optimizer's shards it reads nothing."""

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if not Path(path).is_dir():
            return super().load_checkpoint(path, *args, **kwargs)
        found = read_checkpoint(path)
        return {**found.content, "state_dict": found.module_state()}
