"""Random credit tables and the definitions written as loops, for comparison."""

import torch

from cod_lightning.objective.batch import AttemptTable, Batch, CreditTable, kind_id
from cod_lightning.objective.credited import Credited
from cod_lightning.objective.returns import Returns
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


def plain_credit(
    values, valid=None, *, attempts=(), of=(), attempts_valid=None, table=None, filtered=False
) -> Credited:
    """These advantages, [G K E], and [X] of attempts beside the episodes `of`, without a reweighting."""
    values, extra = torch.as_tensor(values), torch.tensor(attempts, dtype=torch.float32)
    valid = values.isfinite() if valid is None else torch.as_tensor(valid)
    beside = AttemptTable(
        of=torch.tensor(of, dtype=torch.long).view(-1, 3),
        same_context=torch.ones(len(extra)).bool(),
        rewards=extra,
        valid=extra.isfinite(),
        action_counts=torch.ones(len(extra)).long(),
    )
    kinds = torch.arange(values.shape[2]) % 2
    table = table or CreditTable(
        rewards=values, valid=valid, action_counts=torch.ones_like(valid).long(), kinds=kinds, attempts=beside
    )
    return Credited(
        table=table,
        returns=Returns(values, valid, table.kinds),
        values=values,
        valid=valid,
        attempts=extra,
        attempts_valid=extra.isfinite() if attempts_valid is None else torch.tensor(attempts_valid),
        tilted=torch.cat([values.flatten(), extra]),
        filtered=filtered,
    )


def advantage(credit: Credited, batch: Batch, row: int) -> float:
    """What this row of the rollout is to have, after the reweighting."""
    g, k, e = batch.episode_index[row].tolist()
    x, (_, siblings, episodes) = int(batch.attempt[row]), credit.valid.shape
    return float(credit.tilted[credit.valid.numel() + x if x >= 0 else (g * siblings + k) * episodes + e])


def kept_credit(module) -> list[Credited]:
    """What the module credits from now on, one for each rollout."""
    seen, credited = [], module.credited

    def kept(table):
        seen.append(credited(table))
        return seen[-1]

    module.credited = kept
    return seen


def cells(table: CreditTable):
    groups, siblings, episodes = table.valid.shape
    return [(g, k, e) for g in range(groups) for k in range(siblings) for e in range(episodes)]
