"""Random credit tables and the definitions written as loops, for comparison."""

import torch

from cod_lightning.objective.batch import CreditTable
from cod_lightning.objective.credited import Credited


def random_table(seed: int, groups=3, siblings=5, tasks=4, missing=0.2) -> CreditTable:
    rng = torch.Generator().manual_seed(seed)
    valid = torch.rand(groups, siblings, 2 * tasks - 1, generator=rng) >= missing
    solve = torch.rand(groups, siblings, tasks, generator=rng) * valid[..., 0::2]
    update = -0.1 * (torch.rand(groups, siblings, tasks - 1, generator=rng) < 0.3) * valid[..., 1::2]
    counts = torch.randint(1, 30, valid.shape, generator=rng)
    return CreditTable(solve_rewards=solve, update_rewards=update, valid=valid, action_counts=counts)


def rewards_to_go(table: CreditTable, g: int, k: int, e: int) -> list[float] | None:
    """The list of the paper for one episode; None if a reward that it needs is missing."""
    tasks = table.solve_rewards.shape[-1]
    n, is_update = divmod(e, 2)
    own = (table.update_rewards if is_update else table.solve_rewards)[g, k, n].item()
    entries = [(e, own)] + [(2 * j, table.solve_rewards[g, k, j].item()) for j in range(n + 1, tasks)]
    return [reward if table.valid[g, k, f] else None for f, reward in entries]


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
