"""What ranks tell one another beside gradients; without a process group each is alone."""

from typing import Any

import torch.distributed as dist


def gathered(value: Any) -> list[Any]:
    """Everybody's value, by rank. A collective: every rank has to call it equally often."""
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return [value]
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found
