"""How a training rollout is shared out: every rank plays whole groups and trains on what it played, and all see its rewards.

G packs make U updates of S = G/U packs each, in the order of packs. Of an update's S packs rank r of R gets the r-th run of
S/R, so that an update trains on the same packs whatever the number of ranks. Packs that are replaced, and further passes in
another order, may give ranks unequal numbers of groups in an update, or none.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from cod_lightning.credit.table import EpisodeTable, episode_table, facts_of
from cod_lightning.errors import ConfigError
from cod_lightning.objective.batch import Batch
from cod_lightning.ranks import gathered, num_ranks, part, rank, share
from cod_lightning.types import Group


def owners(num_packs: int, num_updates: int) -> list[int]:
    """The rank that plays each pack."""
    size = num_packs // num_updates
    return [r for r in range(num_ranks()) for _ in part(range(size), r, num_ranks())] * num_updates


def table_of_all(own: Sequence[Group], ranks: Sequence[int]) -> EpisodeTable:
    """The episodes of all ranks' groups; `ranks` gives the rank of each pack, and own groups are in that order."""
    facts = [iter(of_rank) for of_rank in gathered([facts_of(group) for group in own])]
    return episode_table([next(facts[of]) for of in ranks])


def batch_of_all(own: Batch) -> tuple[Batch, Int[Tensor, " B"]]:
    """The rows of all ranks, which a checkpoint keeps, and the rank of each."""
    parts = gathered(own)
    width = max(part.token_ids.shape[1] for part in parts)

    def stacked(rows: Sequence[Tensor]) -> Tensor:
        return torch.cat([torch.nn.functional.pad(row, (0, width - row.shape[1])) for row in rows])

    def joined(name: str) -> Tensor:
        rows = [getattr(part, name) for part in parts]
        return stacked(rows) if rows[0].ndim == 2 and name != "place" else torch.cat(rows)

    names = [name for name, value in vars(own).items() if isinstance(value, Tensor)]
    whole = replace(
        own,
        **{name: joined(name) for name in names},
        scores={name: stacked([part.scores[name] for part in parts]) for name in own.scores},
        pack_ids={g: name for part in parts for g, name in part.pack_ids.items()},
    )
    return whole, torch.cat([torch.full((len(part),), r) for r, part in enumerate(parts)])


def own_batch(whole: Batch, row_ranks: Int[Tensor, " B"]) -> Batch:
    """This rank's rows of what `batch_of_all` put together; another number of ranks shares its groups out anew."""
    packs = whole.place[:, 0]
    if len(whole) and int(row_ranks.max()) + 1 == num_ranks():
        chosen = row_ranks == rank()
    else:
        chosen = torch.isin(packs, torch.tensor(share(packs.unique().tolist()), dtype=torch.long))
    return whole.rows(chosen.nonzero().squeeze(1))


def check_shares(packs_per_rollout: int, updates_per_rollout: int, ranks: int) -> None:
    """Raise `ConfigError` where ranks would get different numbers of groups."""
    least = updates_per_rollout * ranks
    if packs_per_rollout % least == 0:
        return
    below, above = packs_per_rollout // least * least, -(-packs_per_rollout // least) * least
    packs = " or ".join(str(n) for n in (below, above) if n)
    updates = [u for u in range(updates_per_rollout, 0, -1) if packs_per_rollout % (u * ranks) == 0][:1]
    other = f", or data.updates_per_rollout to {updates[0]}" if updates else ""
    expected = (
        f"a multiple of {least}, so that each of {ranks} ranks plays equally many packs for each of "
        f"data.updates_per_rollout={updates_per_rollout} updates"
    )
    raise ConfigError("data.packs_per_rollout", packs_per_rollout, expected, f"Set it to {packs}{other}.")
