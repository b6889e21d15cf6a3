"""Losses whose gradient is advantage times score of a whole episode, without a clip."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from cod_lightning.objective.losses.base import LossInputs, LossOutputs, PolicyLoss, log_ratio, metrics_of, units_of
from cod_lightning.ranges import Positive


@dataclass(frozen=True, kw_only=True)
class RLOO(PolicyLoss):
    """L = - 1/num_episodes sum_e A_e sum_{t in e} log p_t.

    Source: arXiv 2402.14740, with `baseline=LeaveOneOut` and `model.scale=none`. It looks at no behaviour log-prob: exact
    only for the first update of a rollout. What differs: a sequence is an episode; no divergence inside the reward.
    """

    @property
    def reuses_tokens(self) -> bool:
        """No: the ratio has no say."""
        return False

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        logprobs = torch.where(inputs.action_mask, inputs.policy_logprobs, 0.0)
        loss = -(inputs.advantages * logprobs).sum() / max(1, inputs.num_episodes)
        return LossOutputs(loss=loss, metrics=metrics_of(inputs, torch.zeros_like(inputs.action_mask)))


@dataclass(frozen=True, kw_only=True)
class OPMD(PolicyLoss):
    """L = 1/num_episodes sum_e (- A_e l_e + tau/2 (l_e - b_e)^2), l_e and b_e the sums of policy and behaviour log-probs.

    Online policy mirror descent: the squared gap keeps the policy near the one that sampled, episodes of zero advantage
    included; where l_e - b_e = A_e / tau there is nothing left to gain, so several passes have an end. Source: arXiv
    2501.12599 (equation 3); one of the REC family in arXiv 2509.24203. The variant whose loss is -A log p / (1 + tau) is
    REINFORCE (`method=reinforce`) at another rate. What differs: a sequence is an episode.
    """

    every_row: ClassVar[bool] = True

    tau: Positive = 1.0
    """Weight of the squared gap; what the advantage is divided by in the mirror step."""

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        logprobs = torch.where(inputs.action_mask, inputs.policy_logprobs, 0.0)
        gap = units_of("episode", inputs).sum(log_ratio(inputs))
        total = 0.5 * self.tau * (gap**2).sum() - (inputs.advantages * logprobs).sum()
        unclipped = torch.zeros_like(inputs.action_mask)
        return LossOutputs(loss=total / max(1, inputs.num_episodes), metrics=metrics_of(inputs, unclipped))
