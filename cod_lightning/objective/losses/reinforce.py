"""Losses whose gradient is advantage times score, of a token or a whole episode: no token is left out by a clip."""

from dataclasses import dataclass

import torch

from cod_lightning.objective.losses.base import (
    LossInputs,
    LossOutputs,
    PolicyLoss,
    log_ratio,
    num_clipped,
    token_share,
)
from cod_lightning.ranges import AtLeastOne, Share


@dataclass(frozen=True, kw_only=True)
class RLOO(PolicyLoss):
    """L = - 1/num_episodes sum_e A_e sum_{t in e} log p_t.

    Source: arXiv 2402.14740, with `baseline=LeaveOneOut` and `model.scale=none`. It looks at no behaviour log-prob: exact
    only for the first update of a rollout; `model.mismatch` weighs tokens that are older when a rollout begins. What differs: a
    sequence is an episode; no divergence inside the reward.
    """

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        logprobs = torch.where(inputs.action_mask, inputs.policy_logprobs, 0.0)
        loss = -(inputs.advantages * logprobs).sum() / max(1, inputs.num_episodes)
        return LossOutputs(loss=loss)


@dataclass(frozen=True, kw_only=True)
class CISPO(PolicyLoss):
    """L = - 1/num_action_tokens sum_t sg[clip(r_t, min_ratio, max_ratio)] A_t log p_t: every token has a gradient.

    sg stops the gradient. Source: arXiv 2506.13585, with `model.scale=group`, where the lower bound is off and the upper
    one tuned; 5 is from arXiv 2510.13786.
    """

    min_ratio: Share = 0.0
    """At 0 there is no lower bound."""
    max_ratio: AtLeastOne = 5.0

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        ratio = log_ratio(inputs).detach().exp()
        weight = ratio.clamp(self.min_ratio, self.max_ratio)
        logprobs = torch.where(inputs.action_mask, inputs.policy_logprobs, 0.0)
        loss = -(token_share(inputs) * weight * inputs.advantages * logprobs).sum()
        return LossOutputs(loss=loss, num_clipped=num_clipped(inputs, weight != ratio))
