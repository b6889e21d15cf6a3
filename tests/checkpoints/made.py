"""What a checkpoint holds, in one file or in shards, and the small model that it is of."""

from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import save

from cod_lightning.models import TinyPolicy

TINY = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 32}
WORDS = ("up", "down")


def model(**settings: Any):
    policy = TinyPolicy(**(TINY | settings))
    return policy.model(policy.tokenizer(WORDS))


def content(kept: Any) -> dict[str, Any]:
    weights = {f"model.{name}": value for name, value in kept.state_dict().items()}
    own = {"global_step": 7, "pytorch-lightning_version": "2.6.6", "cod_lightning": {"version": "0.1.0"}}
    return own | {"state_dict": weights, "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(3)}}}]}


def sharded(path: Path, kept: Any) -> Path:
    """As Lightning's ModelParallelStrategy lays it out."""
    rest = content(kept)
    state = {"state_dict": rest.pop("state_dict"), "optimizer_0": rest.pop("optimizer_states")[0]}
    save(state, checkpoint_id=path, no_dist=True)
    torch.save(rest, path / "meta.pt")
    return path
