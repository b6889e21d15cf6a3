"""Losses with PPO's clip: min(r A, clip(r, 1 - low, 1 + high) A). They differ in what r is of, and in the mean."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from cod_lightning.objective.losses.base import (
    Level,
    LossInputs,
    LossOutputs,
    PolicyLoss,
    episode_share,
    log_ratio,
    num_clipped,
    token_share,
    units_of,
)
from cod_lightning.ranges import Count, NonNegative


@dataclass(frozen=True, kw_only=True)
class GRPO(PolicyLoss):
    """L = - 1/num_episodes sum_e 1/n_e sum_{t in e} min(r_t A_t, clip(r_t) A_t), n_e the tokens of episode e.

    Source: arXiv 2402.03300, with `model.scale=group`. What differs: siblings are compared at their position, not by the
    sum over a lifecycle; the divergence from the reference is the module's own term (`KL` in `model.terms`), a token mean.
    """

    clip_low: NonNegative = 0.2
    clip_high: NonNegative = 0.2

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        return clipped(inputs, log_ratio(inputs), episode_share(inputs), self.clip_low, self.clip_high)


@dataclass(frozen=True, kw_only=True)
class DrGRPO(PolicyLoss):
    """L = - 1/num_episodes sum_e 1/max_tokens sum_{t in e} min(r_t A_t, clip(r_t) A_t): no length bias.

    A long episode is not favoured, since every token has the same share. Source: arXiv 2503.20783, with
    `model.scale=none`; its formula has max_tokens = 1, its code the longest response, as our YAML does.
    """

    clip_low: NonNegative = 0.2
    clip_high: NonNegative = 0.2
    max_tokens: Count = 1
    """A constant; under AdamW it matters where gradients are clipped."""

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        denominator = max(1, inputs.num_episodes) * self.max_tokens
        share = inputs.action_mask / inputs.policy_logprobs.new_tensor(denominator)
        return clipped(inputs, log_ratio(inputs), share, self.clip_low, self.clip_high)


@dataclass(frozen=True, kw_only=True)
class DAPO(PolicyLoss):
    """L = - 1/num_action_tokens sum_t min(r_t A_t, clip(r_t) A_t), with more room above 1 than below.

    Source: arXiv 2503.14476, with `model.scale=group` and dynamic sampling: `data.resample_packs`, and `model.filter_packs=true`
    for packs without signal that are still there when its rounds are over. Its shaping of overlong rewards is a part of the reward
    here, `OverlongReward`.
    """

    clip_low: NonNegative = 0.2
    clip_higher: NonNegative = 0.28
    """How far above 1 the ratio may be where the advantage is positive."""

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        return clipped(inputs, log_ratio(inputs), token_share(inputs), self.clip_low, self.clip_higher)


@dataclass(frozen=True, kw_only=True)
class LOOP(PolicyLoss):
    """L = - 1/num_episodes sum_e mean_{u in e} min(r_u A_e, clip(r_u, 1/(1 + epsilon), 1 + epsilon) A_e), units u by `level`.

    r_u = prod_{t in u} p_t / q_t: the ratio of a token, of a whole turn, or of the whole episode (the source's
    trajectory), not normalised by its length. Source: arXiv 2502.01600 and its code (apple/ml-loop), with
    `baseline=LeaveOneOut`, `model.scale=none` and two passes over a rollout; its table has all three levels, per token best, its
    code tokens and trajectories. What differs: the trajectory is one episode of a lifecycle; updates are made of whole packs unless
    `data.shuffle_episodes` makes them of single trajectories, as the source does; trajectories of an advantage below 0.01 stay in
    the denominator, where the source leaves them out and fills an update with others.
    """

    epsilon: NonNegative = 0.1
    """How far above 1 the ratio may be where the advantage is positive; where it is negative, it may fall to 1 / (1 + epsilon)."""
    level: Level = "token"
    """What a ratio is of."""

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        units = units_of(self.level, inputs)
        of_unit = units.spread(units.sum(log_ratio(inputs)))
        low = self.epsilon / (1 + self.epsilon)
        return clipped(inputs, of_unit, episode_share(inputs, self.level), low, self.epsilon)


@dataclass(frozen=True, kw_only=True)
class GSPO(PolicyLoss):
    """L = - 1/num_episodes sum_e min(s_e A_e, clip(s_e) A_e), with s_e = exp(mean_{t in e} (policy_t - behaviour_t)).

    The ratio of a sequence, normalised by its length, so that whole sequences are clipped and the range is narrow.
    Source: arXiv 2507.18071, with `model.scale=group`. What differs: a sequence is an episode with all its turns.
    """

    sequence_low: NonNegative = 3e-4
    """How far below 1 the ratio may be where the advantage is negative."""
    sequence_high: NonNegative = 4e-4
    """How far above 1 the ratio may be where the advantage is positive."""

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        units = units_of("episode", inputs)
        mean = units.spread(units.means(log_ratio(inputs)))
        return clipped(inputs, mean, episode_share(inputs, "episode"), self.sequence_low, self.sequence_high)


def clipped(
    inputs: LossInputs,
    log_ratio: Float[Tensor, "B T"],
    share: Float[Tensor, "B T"],
    clip_low: float,
    clip_high: float,
) -> LossOutputs:
    """- sum_t share_t min(r_t A_t, clip(r_t, 1 - clip_low, 1 + clip_high) A_t).

    Equal to the minimum in value and gradient; a ratio that is clipped is never exponentiated, since where it overflows
    the gradient of exp times 0 is NaN.
    """
    advantages = torch.where(inputs.action_mask, inputs.advantages, 0.0)
    ratio = log_ratio.detach().exp()
    is_clipped = ((advantages > 0) & (ratio > 1 + clip_high)) | ((advantages < 0) & (ratio < 1 - clip_low))
    bound = torch.full_like(ratio, 1 - clip_low).masked_fill(advantages > 0, 1 + clip_high)
    counts = ~is_clipped & (advantages != 0)
    surrogate = torch.where(counts, torch.where(counts, log_ratio, 0.0).exp(), bound) * advantages
    return LossOutputs(loss=-(share * surrogate).sum(), num_clipped=num_clipped(inputs, is_clipped))
