"""The processes of a run: which one this is, and the records of the others.

Ranks exchange small records through `gathered`, in the order of ranks, so that all of them compute the same numbers in the
same order. The strategy exchanges weights and gradients. Without a
process group there is one rank, number 0.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import torch.distributed as dist

T = TypeVar("T")


def rank() -> int:
    """Number of this process, over all nodes."""
    return dist.get_rank() if _several() else 0


def num_ranks() -> int:
    """R, processes over all nodes."""
    return dist.get_world_size() if _several() else 1


def gathered(record: T) -> list[T]:
    """All ranks' records, in the order of ranks; every rank has to call it."""
    if num_ranks() == 1:
        return [record]
    found: list[Any] = [None] * num_ranks()
    dist.all_gather_object(found, record)
    return found


def gathered_at_first(records: Sequence[T]) -> list[T]:
    """The records of all ranks in a row, on rank 0; none on the others. Every rank has to call it."""
    if num_ranks() == 1:
        return list(records)
    found: list[Any] | None = [None] * num_ranks() if rank() == 0 else None
    dist.gather_object(list(records), found)
    return [record for part in found or () for record in part]


def share(items: Sequence[T]) -> Sequence[T]:
    """This rank's part: parts are runs in the order of ranks, and differ by one in length at most.

    >>> share("abc")
    'abc'
    """
    return part(items, rank(), num_ranks())


def part(items: Sequence[T], index: int, num_parts: int) -> Sequence[T]:
    """One of `num_parts` runs of the items.

    >>> [part("abcde", i, 3) for i in range(3)]
    ['ab', 'c', 'de']
    """
    cuts = [round(i * len(items) / num_parts) for i in (index, index + 1)]
    return items[cuts[0] : cuts[1]]


def whole(weight: Any) -> Any:
    """The tensor, put together where ranks share it out (a `DTensor`); every rank has to call it."""
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight


def _several() -> bool:
    return dist.is_available() and dist.is_initialized()
