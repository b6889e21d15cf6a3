"""The processes of a run: which one this is, and the records of the others.

Ranks exchange small records through `gathered`, in the order of ranks, so that all of them compute the same numbers in the
same order. The strategy exchanges weights and gradients. Without a process group there is one rank, number 0.

Every rank plays whole groups and trains on what it played, and all see its rewards. G packs make U updates of S = G/U packs
each, in the order of packs. Of an update's S packs rank r of R gets the r-th run of S/R, so that an update trains on the same
packs whatever the number of ranks. Packs that are replaced, and further passes in another order, may give ranks unequal numbers
of groups in an update, or none.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch.distributed as dist

from cod_lightning.errors import ConfigError

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


def owners(num_packs: int, num_shares: int) -> list[int]:
    """The rank that plays each pack, equally many of each share."""
    size = num_packs // num_shares
    return [r for r in range(num_ranks()) for _ in part(range(size), r, num_ranks())] * num_shares


def check_shares(packs_per_rollout: int, num_shares: int, ranks: int) -> None:
    """Raise `ConfigError` where ranks would get different numbers of groups."""
    least = num_shares * ranks
    if packs_per_rollout % least:
        each = f" for each of data.updates_per_rollout={num_shares} updates" if num_shares > 1 else ""
        expected = f"a multiple of {least}, so that each of {ranks} ranks plays equally many packs{each}"
        remedy = f"Set it to {-(-packs_per_rollout // least) * least}, say."
        raise ConfigError("data.packs_per_rollout", packs_per_rollout, expected, remedy)


def whole(weight: Any) -> Any:
    """The tensor, put together where ranks share it out (a `DTensor`); every rank has to call it."""
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight


def inside(model: Any, function: Callable[[], T]) -> T:
    """Call the function as if it were the model's forward pass: of a model that ranks share out (`models/sharded.py`) what its root
    holds, embeddings and output layer, is whole in it.

    What it returns may be differentiated. Every rank has to call it, each as often as the others.
    """
    return model.inside(function) if hasattr(model, "inside") else function()


def _several() -> bool:
    return dist.is_available() and dist.is_initialized()
