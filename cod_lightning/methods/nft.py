"""NFT: supervised learning on successes, and on failures through the policy that would have made them."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from cod_lightning.credit.credited import NO_ADVANTAGE
from cod_lightning.objective.losses.base import (
    LossInputs,
    LossOutputs,
    PolicyLoss,
    log_ratio,
    num_clipped,
    token_share,
    units_of,
)
from cod_lightning.ranges import NonNegative, Positive

_LEAST_SHARE = 0.02
"""Shares of successes are kept within [0.02, 0.98], as in the source's code."""
_ROUNDING = 1e-4
"""Share by which N may miss its bound and not count as clipped: the source's bound of 1 is where every ratio of 1 lies."""
_LARGEST = 10.0
"""Log-ratios beyond it count as it."""


@dataclass(frozen=True, kw_only=True)
class NFT(PolicyLoss):
    """L = - 1/num_action_tokens sum_t (1 - r) [A_t > 0] log R_t + negative_weight (1 - r) [A_t < 0] log max(N_t, least_negative).

    R_t is the ratio of policy to behaviour, r the share of successes among the siblings at one place of a pack, and
    N_t = (1 - r R_t) / (1 - r) the ratio of the implicit policy of failures: behaviour = r * successes + (1 - r) * failures. Where
    the maximum takes the bound, the gradient is still that of N_t. With `negative_weight` 0 failures have no say.

    Source: Chen et al., "Bridging Supervised Learning and Reinforcement Learning in Math Reasoning" (NFT, arXiv 2505.18116) and its
    code, there with a token ratio, a bound of 1 and the weight 1 - r for a question. What differs: a success is an episode of
    positive advantage and a failure one of negative advantage, compared at its place; with rewards 0 and 1 and one episode
    per question that is the source's. An advantage of 0, or of rounding noise (`NO_ADVANTAGE`), has no say.
    """

    compares_siblings: ClassVar[bool] = True
    negative_weight: NonNegative = 1.0
    """Weight of failures, at least 0."""
    least_negative: Positive = 1.0
    """Lower bound of N in its logarithm, above 0."""

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        assert inputs.siblings is not None, "siblings that are not known"
        episodes = units_of("episode", inputs)
        of_episode = episodes.means(inputs.advantages)
        is_good, is_bad = of_episode > NO_ADVANTAGE, of_episode < -NO_ADVANTAGE
        success, failure = (episodes.spread(chosen.to(of_episode)).bool() for chosen in (is_good, is_bad))
        _, group = torch.unique(inputs.siblings, return_inverse=True)
        of_group = torch.zeros_like(episodes.index[:, 0][: episodes.num]).index_copy(0, episodes.index[:, 0], group)
        zeros = of_episode.new_zeros(int(group.max()) + 1 if len(group) else 0)
        num_good, num_bad = (zeros.index_add(0, of_group, chosen.to(zeros)) for chosen in (is_good, is_bad))
        share = (num_good / (num_good + num_bad).clamp_min(1)).clamp(_LEAST_SHARE, 1 - _LEAST_SHARE)[group][:, None]
        log_r = log_ratio(inputs).clamp_max(_LARGEST)
        negative = (1 - share * log_r.exp()) / (1 - share)
        bounded = negative.detach().clamp_min(self.least_negative) + (negative - negative.detach())
        gain = torch.where(success, log_r, 0.0) + self.negative_weight * torch.where(failure, bounded, 1.0).log()
        loss = -(token_share(inputs) * (1 - share) * gain).sum()
        is_clipped = negative < self.least_negative * (1 - _ROUNDING)
        return LossOutputs(loss=loss, num_clipped=num_clipped(inputs, failure & is_clipped))
