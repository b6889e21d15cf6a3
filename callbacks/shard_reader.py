"""Reads a sharded checkpoint where nothing is sharded: what was trained with FSDP is tested in one process, or with DDP."""

from pathlib import Path
from typing import Any

from lightning.pytorch.plugins.io import TorchCheckpointIO

from cod_lightning.models.checkpoint import read_checkpoint


class ShardReader(TorchCheckpointIO):
    """Lightning's reader of single files; a folder's weights are put together. Of an optimizer's shards it reads nothing."""

    def load_checkpoint(self, path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The checkpoint's content."""
        if not Path(path).is_dir():
            return super().load_checkpoint(path, *args, **kwargs)
        found = read_checkpoint(path)
        return {**found.content, "state_dict": found.module_state()}
