"""Clip-Cov and KL-Cov: hold back the few tokens whose log-prob and advantage are high together, which eat the entropy.

cov_t = (b_t - mean b) (A_t - mean A) over the action tokens of the update. Source: arXiv 2505.22617. What differs: b is
the behaviour log-prob, where the source's published code has the policy's of the moment and a micro-batch's means. They are
equal in the first update of a rollout, and b is known before any forward pass, so the choice is made once in the whole
update and does not depend on micro-batches.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cod_lightning.objective.losses.base import (
    LossInputs,
    LossOutputs,
    PolicyLoss,
    UpdateTokens,
    log_ratio,
    token_share,
)
from cod_lightning.objective.losses.ppo import clipped
from cod_lightning.ranges import InnerShare, NonNegative, Positive


@dataclass(frozen=True, kw_only=True)
class ClipCov(PolicyLoss):
    """Token mean of PPO's clip without r N tokens (at least one) drawn from those with cov_low < cov_t < cov_high.

    Source: arXiv 2505.22617, with `model.scale=group`, on which the bounds depend; its PPO range is as wide as here.
    What differs: covariances are of the behaviour log-prob over the whole update; tokens that PPO clips may be drawn, too.
    """

    ratio_low: NonNegative = 1.0
    ratio_high: NonNegative = 1.0
    drop_fraction: InnerShare = 2e-4
    """r, of the update's action tokens."""
    cov_low: float = 1.0
    cov_high: float = 5.0

    def mark(self, tokens: UpdateTokens, seed: int) -> Bool[Tensor, "B T"]:
        covariance = covariances(tokens)
        candidates = ((covariance > self.cov_low) & (covariance < self.cov_high) & tokens.action_mask).nonzero()
        order = torch.randperm(len(candidates), generator=torch.Generator().manual_seed(seed))
        chosen = candidates[order[: _num_marked(tokens, self.drop_fraction)].to(candidates.device)]
        marked = torch.zeros_like(tokens.action_mask)
        marked[chosen[:, 0], chosen[:, 1]] = True
        return marked

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        """Mean over the update's tokens; those drawn stay in the denominator."""
        share = token_share(inputs)
        return clipped(inputs, log_ratio(inputs), share, self.ratio_low, self.ratio_high, dropped=inputs.marked)


@dataclass(frozen=True, kw_only=True)
class KLCov(PolicyLoss):
    """L = - 1/num_action_tokens sum_t (r_t A_t - penalty [t marked] |policy_t - behaviour_t|), no clip.

    Marked are the k N tokens (at least one) of the largest covariance. Source: arXiv 2505.22617, with
    `model.scale=group`; its code has the absolute gap for the divergence, which is 0 with zero gradient on-policy. What differs:
    covariances are of the behaviour log-prob over the whole update.
    """

    penalised_fraction: InnerShare = 2e-3
    """k, of the update's action tokens."""
    penalty: Positive = 1.0

    def mark(self, tokens: UpdateTokens, seed: int) -> Bool[Tensor, "B T"]:
        covariance = covariances(tokens).masked_fill(~tokens.action_mask, -torch.inf).flatten()
        marked = torch.zeros_like(tokens.action_mask).flatten()
        marked[covariance.topk(min(len(covariance), _num_marked(tokens, self.penalised_fraction))).indices] = True
        return marked.view(tokens.action_mask.shape) & tokens.action_mask

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        gap, share = log_ratio(inputs), token_share(inputs)
        counts = inputs.action_mask & (inputs.advantages != 0)
        surrogate = torch.where(counts, gap, 0.0).exp() * torch.where(counts, inputs.advantages, 0.0)
        held_back = torch.where(inputs.marked, gap, 0.0).abs()
        loss = (share * (self.penalty * held_back - surrogate)).sum()
        return LossOutputs(loss=loss)


def covariances(tokens: UpdateTokens) -> Float[Tensor, "B T"]:
    """cov_t at action tokens (float64), 0 elsewhere.

    >>> everything = torch.ones(1, 2, dtype=torch.bool)
    >>> b, a = torch.tensor([[-1.0, -3.0]]), torch.tensor([[1.0, 0.0]])
    >>> covariances(UpdateTokens(behaviour_logprobs=b, advantages=a, action_mask=everything)).tolist()
    [[0.5, 0.5]]
    """
    mask = tokens.action_mask
    count = mask.sum().clamp_min(1)

    def centred(values: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        exact = torch.where(mask, values.double(), 0.0)
        return torch.where(mask, exact - exact.sum() / count, 0.0)

    return centred(tokens.behaviour_logprobs) * centred(tokens.advantages)


def _num_marked(tokens: UpdateTokens, fraction: float) -> int:
    return max(1, int(fraction * int(tokens.action_mask.sum())))
