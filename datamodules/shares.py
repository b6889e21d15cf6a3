"""How a training rollout is shared out: every rank plays whole groups, the same number for each update, and all see its rewards.

G packs make U updates of S = G/U packs each, in the order of packs. Of an update's S packs rank r of R gets the r-th run of
S/R, so that an update trains on the same packs whatever the number of ranks.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

import torch
from jaxtyping import Bool
from torch import Tensor

from cod_lightning.errors import ConfigError
from cod_lightning.objective.batch import Batch, CreditTable
from cod_lightning.ranks import gathered, num_ranks, rank, share
from cod_lightning.types import Pack


def own_packs(packs: Sequence[Pack], num_updates: int) -> list[Pack]:
    """This rank's part of each update's packs, update after update."""
    size = len(packs) // num_updates
    return list(chain.from_iterable(share(packs[first : first + size]) for first in range(0, len(packs), size)))


def table_of_all(own: CreditTable, num_updates: int) -> CreditTable:
    """The rewards of all ranks' groups, in the order of the rollout's packs."""
    parts = gathered(own)

    def joined(name: str) -> Tensor:
        by_update = [getattr(part, name).unflatten(0, (num_updates, -1)) for part in parts]
        return torch.stack(by_update, dim=1).flatten(0, 2)

    return CreditTable(**{name: joined(name) for name in vars(own)})


def batch_of_all(own: Batch) -> Batch:
    """One update's rows of all ranks, in the order of packs: what a checkpoint keeps, for any number of ranks."""
    parts = gathered(own)
    width = max(part.token_ids.shape[1] for part in parts)

    def joined(name: str) -> Tensor:
        rows = [getattr(part, name) for part in parts]
        wide = rows[0].ndim == 2 and name != "episode_index"
        return torch.cat([torch.nn.functional.pad(row, (0, width - row.shape[1])) if wide else row for row in rows])

    names = [name for name, value in vars(own).items() if isinstance(value, Tensor)]
    return replace(
        own,
        **{name: joined(name) for name in names},
        num_action_tokens=sum(part.num_action_tokens for part in parts),
        pack_ids={g: name for part in parts for g, name in part.pack_ids.items()},
    )


def own_batch(whole: Batch, num_updates: int) -> Batch:
    """This rank's rows of an update that `batch_of_all` put together."""
    if num_ranks() == 1:
        return whole
    mine = whole.rows(_is_own(whole, num_updates).nonzero().squeeze(1))
    return replace(mine, num_action_tokens=int(mine.action_mask.sum()))


def _is_own(whole: Batch, num_updates: int) -> Bool[Tensor, " B"]:
    size = whole.credit.valid.shape[0] // num_updates
    return (whole.episode_index[:, 0] % size) // (size // num_ranks()) == rank()


def check_shares(packs_per_rollout: int, updates_per_rollout: int, ranks: int) -> None:
    """Raise `ConfigError` where ranks would get different numbers of groups."""
    least = updates_per_rollout * ranks
    if packs_per_rollout % least == 0:
        return
    below, above = packs_per_rollout // least * least, -(-packs_per_rollout // least) * least
    packs = " or ".join(str(n) for n in (below, above) if n)
    updates = [u for u in range(updates_per_rollout, 0, -1) if packs_per_rollout % (u * ranks) == 0][:1]
    other = f", or data.updates_per_rollout to {updates[0]}" if updates else ""
    raise ConfigError(
        "data.packs_per_rollout",
        packs_per_rollout,
        f"a multiple of {least}, so that each of {ranks} ranks plays equally many packs for each of "
        f"data.updates_per_rollout={updates_per_rollout} updates",
        f"Set it to {packs}{other}.",
    )
