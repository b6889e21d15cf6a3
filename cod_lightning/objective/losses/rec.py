"""The REC family: REINFORCE with a clip that is a mask."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cod_lightning.objective.losses.base import LossInputs, LossOutputs, PolicyLoss, num_clipped
from cod_lightning.ranges import NonNegative


@dataclass(frozen=True, kw_only=True)
class REC(PolicyLoss):
    """Clipping as a mask: L = - sum_t keep_t w_t A_t log p_t / num_action_tokens.

    ratio = exp(policy - behaviour), without gradient;
    w = 1 (NoIS), or the ratio with `importance_weights`;
    keep by `clip`:

    - one_side: (A >= 0 and ratio <= 1 + clip_high) or (A <= 0 and ratio >= 1 - clip_low);
    - two_side: 1 - clip_low <= ratio <= 1 + clip_high;
    - ring: as two_side, or (A >= 0 and ratio <= 1 - outer_low), or (A <= 0 and ratio >= 1 + outer_high): tokens that
      are far off in the direction in which the advantage pulls them back;
    - none: every token (with NoIS that is REINFORCE on whatever was sampled).

    Source: arXiv 2509.24203; one_side without importance weights is what the main runs of arXiv 2606.20002 use. There
    the shift of the outer bounds is 0.6 and 2.0 too. What differs: the mean is over the update's tokens, not a batch's.
    """

    clip_low: NonNegative = 0.2
    """How far below 1 the ratio may be where the advantage is negative."""
    clip_high: NonNegative = 0.2
    """How far above 1 the ratio may be where the advantage is positive."""
    importance_weights: bool = False
    """Weigh kept tokens by the ratio."""
    clip: Literal["one_side", "two_side", "ring", "none"] = "one_side"
    """Which tokens are kept."""
    outer_low: NonNegative = 0.6
    """ring: how far below 1 the ratio has to be to count again."""
    outer_high: NonNegative = 2.0
    """ring: how far above 1 the ratio has to be to count again."""

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        mask, advantages = inputs.action_mask, inputs.advantages
        log_ratio = torch.where(mask, inputs.policy_logprobs.detach() - inputs.behaviour_logprobs, 0.0)
        ratio = log_ratio.exp()
        keep = self._keep(ratio, advantages)
        weight = ratio if self.importance_weights else torch.ones_like(ratio)
        logprobs = torch.where(mask & keep, inputs.policy_logprobs, 0.0)
        counts = mask & keep & (advantages != 0)  # where it does not count, the ratio may be infinite
        weight = torch.where(counts, advantages * weight, 0.0)
        loss = -(weight * logprobs).sum() / max(1, inputs.num_action_tokens)
        return LossOutputs(loss=loss, num_clipped=num_clipped(inputs, ~keep & (advantages != 0)))

    def _keep(self, ratio: Float[Tensor, "B T"], advantages: Float[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
        not_above, not_below = ratio <= 1 + self.clip_high, ratio >= 1 - self.clip_low
        up, down = advantages >= 0, advantages <= 0
        if self.clip == "one_side":
            return (up & not_above) | (down & not_below)
        if self.clip == "none":
            return torch.ones_like(not_above)
        if self.clip == "two_side":
            return not_above & not_below
        far = (up & (ratio <= 1 - self.outer_low)) | (down & (ratio >= 1 + self.outer_high))
        return (not_above & not_below) | far
