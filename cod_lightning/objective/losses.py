"""Policy losses on tokens. A loss is a frozen dataclass that YAML names with `model.loss.class_path`."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cod_lightning.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class LossInputs:
    """What a loss may look at: rows of one micro-batch."""

    policy_logprobs: Float[Tensor, "B T"]
    """Under the weights being trained (nats), with gradient."""
    behaviour_logprobs: Float[Tensor, "B T"]
    """Under the sampler (nats)."""
    advantages: Float[Tensor, "B T"]
    action_mask: Bool[Tensor, "B T"]
    num_action_tokens: int
    """Of the whole update, over all ranks and micro-batches: the denominator."""


@dataclass(frozen=True, kw_only=True)
class LossMetrics:
    """Sums over action tokens, so that adding over micro-batches and ranks is right."""

    num_tokens: Float[Tensor, ""]
    num_clipped: Float[Tensor, ""]
    """Tokens whose gradient the clip removed."""
    sum_logprob_gap: Float[Tensor, ""]
    """Of |policy - behaviour| (nats)."""
    max_logprob_gap: Float[Tensor, ""]
    """Largest |policy - behaviour|; combined by maximum."""

    def __add__(self, other: "LossMetrics") -> "LossMetrics":
        """Metrics of both together."""
        return LossMetrics(
            num_tokens=self.num_tokens + other.num_tokens,
            num_clipped=self.num_clipped + other.num_clipped,
            sum_logprob_gap=self.sum_logprob_gap + other.sum_logprob_gap,
            max_logprob_gap=torch.maximum(self.max_logprob_gap, other.max_logprob_gap),
        )


@dataclass(frozen=True, kw_only=True)
class LossOutputs:
    """A scalar to differentiate, and what to log."""

    loss: Float[Tensor, ""]
    metrics: LossMetrics


class PolicyLoss(ABC):
    """Log-probabilities and advantages to a scalar."""

    @abstractmethod
    def __call__(self, inputs: LossInputs) -> LossOutputs:
        """The micro-batch's share of the update's loss."""


@dataclass(frozen=True, kw_only=True)
class REC(PolicyLoss):
    """One-sided clipping as a mask: L = - sum_t keep_t w_t A_t log p_t / num_action_tokens.

    ratio = exp(policy - behaviour), without gradient;
    keep = (A >= 0 and ratio <= 1 + clip_high) or (A <= 0 and ratio >= 1 - clip_low);
    w = 1 (REC-OneSide-NoIS, the main runs of arXiv 2606.20002), or the ratio with `importance_weights`.
    Source: the REC family, arXiv 2509.24203.
    """

    clip_low: float = 0.2
    """How far below 1 the ratio may be where the advantage is negative."""
    clip_high: float = 0.2
    """How far above 1 the ratio may be where the advantage is positive."""
    importance_weights: bool = False
    """Weigh kept tokens by the ratio."""

    def __post_init__(self) -> None:
        for key, value in (("clip_low", self.clip_low), ("clip_high", self.clip_high)):
            if value < 0:
                raise ConfigError(f"model.loss.{key}", value, "at least 0", "0.2 is the paper's.")

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        """Masked sum over tokens."""
        mask, advantages = inputs.action_mask, inputs.advantages
        log_ratio = torch.where(mask, inputs.policy_logprobs.detach() - inputs.behaviour_logprobs, 0.0)
        ratio = log_ratio.exp()
        keep = ((advantages >= 0) & (ratio <= 1 + self.clip_high)) | ((advantages <= 0) & (ratio >= 1 - self.clip_low))
        weight = ratio if self.importance_weights else torch.ones_like(ratio)
        logprobs = torch.where(mask & keep, inputs.policy_logprobs, 0.0)
        counts = mask & keep & (advantages != 0)  # where it does not count, the ratio may be infinite
        weight = torch.where(counts, advantages * weight, 0.0)
        loss = -(weight * logprobs).sum() / max(1, inputs.num_action_tokens)
        gap = log_ratio.abs()
        metrics = LossMetrics(
            num_tokens=mask.sum().float(),
            num_clipped=(mask & ~keep).sum().float(),
            sum_logprob_gap=gap.sum(),
            max_logprob_gap=gap.max() if gap.numel() else gap.sum(),
        )
        return LossOutputs(loss=loss, metrics=metrics)


def kl_to_reference(
    policy_logprobs: Float[Tensor, "B T"], reference_logprobs: Float[Tensor, "B T"], action_mask: Bool[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Sum over action tokens of the k2 estimator, (policy - reference)^2 / 2 (nats); divide by the update's token count.

    Its expected gradient is that of KL(policy || reference) when the tokens were sampled from the policy.

    >>> kl_to_reference(torch.tensor([[-1.0, -9.0]]), torch.tensor([[-2.0, 0.0]]), torch.tensor([[True, False]]))
    tensor(0.5000)
    """
    gap = torch.where(action_mask, policy_logprobs - reference_logprobs, 0.0)  # masked first: 0 * inf is NaN backwards
    return 0.5 * (gap**2).sum()
