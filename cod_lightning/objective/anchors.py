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

from cod_lightning.objective.baselines import Advantages, Baseline
from cod_lightning.objective.batch import AttemptTable, CreditTable, kind_id
from cod_lightning.objective.returns import CreditRule, Returns
from cod_lightning.types import EpisodeKind


@dataclass(frozen=True)
class Shared:
    """Sums over the attempts beside each episode of the lifecycles; the lifecycle's own solve episode counts."""

    total: Float[Tensor, "G K E"]
    """Rewards of all that had the context."""
    count: Float[Tensor, "G K E"]
    others: Float[Tensor, "G K E"]
    """Number of those that are not the lifecycle's own."""
    total_without: Float[Tensor, "G K E"]
    count_without: Float[Tensor, "G K E"]


def shared(table: CreditTable) -> Shared:
    """The sums, at solve episodes; without meaning elsewhere."""
    attempts, rewards = table.attempts, table.known_rewards
    index = tuple(attempts.of.unbind(dim=1))

    def summed(values: Float[Tensor, " X"], chosen: Bool[Tensor, " X"]) -> Float[Tensor, "G K E"]:
        kept = torch.where(chosen & attempts.valid, values, 0.0).to(rewards)
        return torch.zeros_like(rewards).index_put(index, kept, accumulate=True)

    ones, same = torch.ones_like(attempts.rewards), attempts.same_context
    others = summed(ones, same)
    return Shared(
        total=rewards + summed(attempts.rewards, same),
        count=table.valid.to(rewards) + others,
        others=others,
        total_without=summed(attempts.rewards, ~same),
        count_without=summed(ones, ~same),
    )


def with_attempts(
    table: CreditTable, returns: Returns, rule: CreditRule, baseline: Baseline
) -> tuple[Advantages, Advantages]:
    """Advantages of the lifecycles' episodes, [G K E], and of attempts, [X]; those of `baseline` alone where there are none."""
    plain = baseline(returns)
    attempts = table.attempts
    if not len(attempts.rewards):
        return plain, Advantages(attempts.rewards, attempts.valid)
    beside, rewards = shared(table), table.known_rewards
    weights = rule.weights(table.kinds).to(rewards)
    solves, later = table.solves, next_solve(table.kinds)
    """[E] the solve episode that comes next; of the last one, itself."""
    own, after = weights.diagonal(), weights.gather(1, later[:, None]).squeeze(1)
    mean_of_others = (beside.total - rewards) / beside.others.clamp_min(1)
    worth, known = context_worth(beside)
    updates = table.kinds == kind_id(EpisodeKind.UPDATE)
    zero = torch.zeros_like(rewards)
    term = torch.where(solves, own * rewards, torch.where(updates, after * rewards[..., later], zero))
    """What attempts measure of each return."""
    anchored = own / beside.count.clamp_min(1) * (rewards - mean_of_others)
    instead = torch.where(solves, anchored, torch.where(updates, after * worth[..., later], zero))
    """What takes its place."""
    measured = torch.where(solves, beside.others > 0, updates & known[..., later])

    rest = baseline(Returns(returns.values - term, returns.valid, returns.kinds))
    values = torch.where(measured & rest.valid, rest.values + instead, plain.values)
    return Advantages(values, plain.valid), _of_attempts(attempts, beside, own)


def next_solve(kinds: Int[Tensor, " E"]) -> Int[Tensor, " E"]:
    """Index of the first solve episode after each episode; of the last solve episode, its own.

    >>> next_solve(torch.tensor([0, 1, 0, 0, 1, 0]))
    tensor([2, 2, 3, 5, 5, 5])
    """
    solves = (kinds == kind_id(EpisodeKind.SOLVE)).nonzero().squeeze(1)
    places = torch.searchsorted(solves, torch.arange(len(kinds), device=kinds.device), right=True)
    return solves[places.clamp_max(len(solves) - 1)]


def context_worth(beside: Shared) -> tuple[Float[Tensor, "G K E"], Bool[Tensor, "G K E"]]:
    """Mean reward of a solve episode's task with its context less that without it, and where both are known."""
    known = (beside.count > 0) & (beside.count_without > 0)
    gained = beside.total / beside.count.clamp_min(1) - beside.total_without / beside.count_without.clamp_min(1)
    return torch.where(known, gained, 0.0), known


def _of_attempts(attempts: AttemptTable, beside: Shared, own: Float[Tensor, " E"]) -> Advantages:
    """[X] w/M (r_m - mean of the others from the same context); 0 where not valid, as where an attempt only measures."""
    index = tuple(attempts.of.unbind(dim=1))
    total, count, weight = beside.total[index], beside.count[index], own[attempts.of[:, 2]]
    rewards = torch.where(attempts.valid, attempts.rewards, 0.0)
    mean_of_others = (total - rewards) / (count - 1).clamp_min(1)
    valid = attempts.valid & attempts.same_context & (count >= 2)
    return Advantages(torch.where(valid, weight / count.clamp_min(1) * (rewards - mean_of_others), 0.0), valid)
