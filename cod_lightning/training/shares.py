"""How a training rollout is shared out: every rank plays whole groups and trains on what it played, and all see its rewards.

G packs make U updates of S = G/U packs each, in the order of packs. Of an update's S packs rank r of R gets the r-th run of
S/R, so that an update trains on the same packs whatever the number of ranks. Packs that are replaced, and further passes in
another order, may give ranks unequal numbers of groups in an update, or none.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import chain

import torch
from jaxtyping import Int
from torch import Tensor

from cod_lightning.errors import ConfigError
from cod_lightning.objective.batch import AttemptTable, Batch, CreditTable, credit_table
from cod_lightning.ranks import gathered, num_ranks, part, rank, share
from cod_lightning.types import Group


def owners(num_packs: int, num_updates: int) -> list[int]:
    """The rank that plays each pack."""
    size = num_packs // num_updates
    return [r for r in range(num_ranks()) for _ in part(range(size), r, num_ranks())] * num_updates


def table_of_all(own: Sequence[Group], ranks: Sequence[int]) -> CreditTable:
    """The rewards of all ranks' groups; `ranks` gives the rank of each row g, and own groups are in that order."""
    parts = gathered(credit_table(own) if own else None)
    places = [[g for g, of in enumerate(ranks) if of == r] for r in range(num_ranks())]
    order = torch.tensor(list(chain.from_iterable(places))).argsort()
    there = [(table, torch.tensor(its)) for table, its in zip(parts, places, strict=True) if table is not None]

    def joined(name: str) -> Tensor:
        return torch.cat([getattr(table, name) for table, _ in there])[order]

    names = [field.name for field in fields(CreditTable) if field.name not in ("attempts", "kinds")]
    attempts = _joined_attempts([(table.attempts, its) for table, its in there])
    return CreditTable(**{name: joined(name) for name in names}, kinds=there[0][0].kinds, attempts=attempts)


def _joined_attempts(parts: Sequence[tuple[AttemptTable, Tensor]]) -> AttemptTable:
    """In the order of groups; each part comes with the places of its groups."""
    placed = [replace(table, of=torch.column_stack([its[table.of[:, 0]], table.of[:, 1:]])) for table, its in parts]
    order = torch.cat([table.of[:, 0] for table in placed]).argsort(stable=True)
    names = [field.name for field in fields(AttemptTable)]
    return AttemptTable(**{name: torch.cat([getattr(table, name) for table in placed])[order] for name in names})


def batch_of_all(own: Batch) -> tuple[Batch, Int[Tensor, " B"]]:
    """The rows of all ranks, which a checkpoint keeps, and the rank of each."""
    parts = gathered(own)
    width = max(part.token_ids.shape[1] for part in parts)

    def stacked(rows: Sequence[Tensor]) -> Tensor:
        return torch.cat([torch.nn.functional.pad(row, (0, width - row.shape[1])) for row in rows])

    def joined(name: str) -> Tensor:
        rows = [getattr(part, name) for part in parts]
        return stacked(rows) if rows[0].ndim == 2 and name != "episode_index" else torch.cat(rows)

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
    packs = whole.episode_index[:, 0]
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
