"""What ranks tell one another beside gradients; without a process group each is alone."""

from typing import Any

import torch
import torch.distributed as dist


def gathered(value: Any) -> list[Any]:
    """Everybody's value, by rank. A collective: every rank has to call it equally often."""
    if not _several():
        return [value]
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def largest(number: int, device: torch.device) -> int:
    """The largest of everybody's numbers. A collective."""
    if not _several():
        return number
    told = torch.tensor([number], device=device)
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return int(told)


def _several() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
