"""Random credit tables and the definitions written as loops, for comparison."""

import torch

from cod_lightning.objective.batch import CreditTable, kind_id
from cod_lightning.objective.credited import Credited
from cod_lightning.plans import LifecyclePlan, UpdateEvery, planned
from cod_lightning.types import EpisodeKind


def paper_table(solve, update, *, valid, action_counts, **more) -> CreditTable:
    """The table of the paper's plan: [G K N] rewards of solve episodes and [G K N-1] of updates, interleaved."""
    rewards = torch.empty(valid.shape, dtype=solve.dtype)
    rewards[..., 0::2], rewards[..., 1::2] = solve, update
    kinds = torch.arange(valid.shape[-1]) % 2
    return CreditTable(rewards=rewards, valid=valid, action_counts=action_counts, kinds=kinds, **more)


def random_table(
    seed: int, groups=3, siblings=5, tasks=4, missing=0.2, plan: LifecyclePlan | None = None
) -> CreditTable:
    rng = torch.Generator().manual_seed(seed)
    order = planned(plan or UpdateEvery(), tasks)
    kinds = torch.tensor([kind_id(kind) for kind, _ in order])
    valid = torch.rand(groups, siblings, len(order), generator=rng) >= missing
    solve = torch.rand(groups, siblings, len(order), generator=rng)
    update = -0.1 * (torch.rand(groups, siblings, len(order), generator=rng) < 0.3)
    counts = torch.randint(1, 30, valid.shape, generator=rng)
    return CreditTable(
        rewards=torch.where(kinds == 0, solve, update) * valid, valid=valid, action_counts=counts, kinds=kinds
    )


def rewards_to_go(table: CreditTable, g: int, k: int, e: int) -> list[float] | None:
    """The list of the paper for one episode: its own reward, then those of later solve episodes; None for a missing one.

    That of a proposal is its own reward alone.
    """
    proposal = table.kinds[e] == kind_id(EpisodeKind.PROPOSE)
    entries = [e, *(f for f in range(e + 1, table.valid.shape[-1]) if table.kinds[f] == 0 and not proposal)]
    return [table.rewards[g, k, f].item() if table.valid[g, k, f] else None for f in entries]


def plain_credit(values: torch.Tensor) -> Credited:
    """These advantages, without attempts."""
    return Credited(
        values=values,
        valid=values.isfinite(),
        attempts=torch.zeros(0),
        attempts_valid=torch.ones(0).bool(),
        of=torch.zeros(0, 3).long(),
    )


def cells(table: CreditTable):
    groups, siblings, episodes = table.valid.shape
    return [(g, k, e) for g in range(groups) for k in range(siblings) for e in range(episodes)]
