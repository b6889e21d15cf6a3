"""Credit from attempts that share a moment of a lifecycle: anchors, and what a context was worth.

Episodes at the same position start from different contexts, so their mean is not strictly a baseline (a weak point that
arXiv 2606.20002 names). Attempts from a snapshot remove that difference for the one reward that they measure. A credit
rule is a weighted sum of rewards, R_e = sum_f w_ef r_f; of each return one term is compared with attempts and the rest
with siblings, as before:

    solve j, anchored       A = B(R - w r_j)_e + w/M (r_j - mean of the other attempts)          w = w_ee
    attempt m at task j     A = w/M (r_m - mean of the others)                                   w of that solve episode
    update, measured        A = B(R - w r_f)_e + w (mean with its context - mean without)        w = w_ef, f the next solve

B is the run's baseline over siblings, M the number of attempts that have a reward, the lifecycle's own included. An
attempt's rewards say nothing about other attempts' tokens, nor the mean without the context about the words that wrote it,
so each is a baseline: with leave-one-out over siblings the expected gradient is that of the credit rule alone (each of M
attempts weighs 1/M of the one), and only its noise differs. Where no attempt has a reward, siblings decide as before.

Source: the local re-rolls of Memory-R2 (arXiv 2605.21768), which compare what came of one intermediate state; the formula
is ours.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cod_lightning.credit.baselines import Advantages, Baseline
from cod_lightning.credit.returns import CreditRule, Returns
from cod_lightning.credit.table import EpisodeTable, kind_id
from cod_lightning.types import EpisodeKind


@dataclass(frozen=True)
class Shared:
    """Sums over the attempts beside each of N own episodes; the lifecycle's own solve episode counts."""

    total: Float[Tensor, " N"]
    """Rewards of all that had the context."""
    count: Float[Tensor, " N"]
    others: Float[Tensor, " N"]
    """Number of those that are not the lifecycle's own."""
    total_without: Float[Tensor, " N"]
    count_without: Float[Tensor, " N"]


def shared(table: EpisodeTable) -> Shared:
    """The sums, at solve episodes; without meaning elsewhere."""
    num = table.num_own
    own, rewards, same = table.known_rewards[:num], table.known_rewards[num:], table.trained[num:]

    def summed(values: Float[Tensor, " X"], chosen: Bool[Tensor, " X"]) -> Float[Tensor, " N"]:
        kept = torch.where(chosen & table.valid[num:], values, 0.0)
        return torch.zeros_like(own).index_put((table.parent[num:],), kept, accumulate=True)

    ones = torch.ones_like(rewards)
    others = summed(ones, same)
    return Shared(
        total=own + summed(rewards, same),
        count=table.valid[:num].to(own) + others,
        others=others,
        total_without=summed(rewards, ~same),
        count_without=summed(ones, ~same),
    )


def with_attempts(table: EpisodeTable, returns: Returns, rule: CreditRule, baseline: Baseline) -> Advantages:
    """Advantages of all F entries: those of `baseline` alone where there are no attempts."""
    plain, num = baseline.of_all(table, returns), table.num_own
    if len(table) == num:
        return plain
    beside, rewards = shared(table), table.known_rewards[:num]
    own, after, later = torch.zeros_like(rewards), torch.zeros_like(rewards), torch.arange(num)
    """[N] its own weight in each return, that of the solve episode that comes next, and which that is; of the last, itself."""
    for entries, kinds in table.lifecycles:
        weights, place = rule.weights(kinds).to(rewards), next_solve(kinds)
        own[entries], after[entries] = weights.diagonal(), weights.gather(1, place[:, None]).squeeze(1)
        later[entries] = entries[:, place]
    solves, updates = (table.kinds[:num] == kind_id(kind) for kind in (EpisodeKind.SOLVE, EpisodeKind.UPDATE))
    mean_of_others = (beside.total - rewards) / beside.others.clamp_min(1)
    worth, known = context_worth(beside)
    zero = torch.zeros_like(rewards)
    term = torch.where(solves, own * rewards, torch.where(updates, after * rewards[later], zero))
    """What attempts measure of each return."""
    anchored = own / beside.count.clamp_min(1) * (rewards - mean_of_others)
    instead = torch.where(solves, anchored, torch.where(updates, after * worth[later], zero))
    """What takes its place."""
    measured = torch.where(solves, beside.others > 0, updates & known[later])

    rest = baseline.of_all(table, Returns(returns.values - term, returns.valid))
    values = torch.where(measured & rest.valid, rest.values + instead, plain.values)
    attempts = _of_attempts(table, beside, own)
    return Advantages(torch.cat([values, attempts.values]), torch.cat([plain.valid, attempts.valid]))


def next_solve(kinds: Int[Tensor, " E"]) -> Int[Tensor, " E"]:
    """Index of the first solve episode after each episode; of the last solve episode, its own.

    >>> next_solve(torch.tensor([0, 1, 0, 0, 1, 0]))
    tensor([2, 2, 3, 5, 5, 5])
    """
    solves = (kinds == kind_id(EpisodeKind.SOLVE)).nonzero().squeeze(1)
    places = torch.searchsorted(solves, torch.arange(len(kinds), device=kinds.device), right=True)
    return solves[places.clamp_max(len(solves) - 1)]


def context_worth(beside: Shared) -> tuple[Float[Tensor, " N"], Bool[Tensor, " N"]]:
    """Mean reward of a solve episode's task with its context less that without it, and where both are known."""
    known = (beside.count > 0) & (beside.count_without > 0)
    gained = beside.total / beside.count.clamp_min(1) - beside.total_without / beside.count_without.clamp_min(1)
    return torch.where(known, gained, 0.0), known


def _of_attempts(table: EpisodeTable, beside: Shared, own: Float[Tensor, " N"]) -> Advantages:
    """[X] w/M (r_m - mean of the others from the same context); 0 where not valid, as where an attempt only measures."""
    num, parent = table.num_own, table.parent[table.num_own :]
    total, count, weight = beside.total[parent], beside.count[parent], own[parent]
    rewards = table.known_rewards[num:]
    mean_of_others = (total - rewards) / (count - 1).clamp_min(1)
    valid = table.valid[num:] & table.trained[num:] & (count >= 2)
    return Advantages(torch.where(valid, weight / count.clamp_min(1) * (rewards - mean_of_others), 0.0), valid)
