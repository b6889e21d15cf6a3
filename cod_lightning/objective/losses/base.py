"""What every policy loss is given and gives back."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cod_lightning.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class UpdateTokens:
    """What is known of all tokens of an update before any forward pass."""

    behaviour_logprobs: Float[Tensor, "B T"]
    advantages: Float[Tensor, "B T"]
    action_mask: Bool[Tensor, "B T"]


@dataclass(frozen=True, kw_only=True)
class LossInputs:
    """What a loss may look at: rows of one micro-batch, which holds every row of each of its episodes."""

    policy_logprobs: Float[Tensor, "B T"]
    """Under the weights being trained (nats), with gradient."""
    behaviour_logprobs: Float[Tensor, "B T"]
    """Under the sampler (nats)."""
    advantages: Float[Tensor, "B T"]
    action_mask: Bool[Tensor, "B T"]
    marked: Bool[Tensor, "B T"]
    """Tokens that the loss's `mark` chose out of the whole update."""
    episode: Int[Tensor, " B"]
    """Which episode a row is of; any integers."""
    num_action_tokens: int
    """Of the whole update, over all ranks and micro-batches: a denominator."""
    num_episodes: int
    """Of the whole update, with at least one action token each: the other denominator."""


@dataclass(frozen=True, kw_only=True)
class LossMetrics:
    """Sums over action tokens, so that adding over micro-batches and ranks is right."""

    num_tokens: Float[Tensor, ""]
    num_clipped: Float[Tensor, ""]
    """Tokens whose gradient the clip removed or, where the loss clips weights, whose weight it changed."""
    sum_logprob_gap: Float[Tensor, ""]
    """Of |policy - behaviour| (nats)."""
    max_logprob_gap: Float[Tensor, ""]
    """Largest |policy - behaviour|; combined by maximum."""

    def cpu(self) -> "LossMetrics":
        return LossMetrics(**{name: value.cpu() for name, value in vars(self).items()})

    def __add__(self, other: "LossMetrics") -> "LossMetrics":
        added = {name: value + getattr(other, name) for name, value in vars(self).items()}
        return LossMetrics(**added | {"max_logprob_gap": torch.maximum(self.max_logprob_gap, other.max_logprob_gap)})


@dataclass(frozen=True, kw_only=True)
class LossOutputs:
    """A scalar to differentiate, and what to log."""

    loss: Float[Tensor, ""]
    metrics: LossMetrics


class PolicyLoss(ABC):
    """Log-probabilities and advantages to a scalar."""

    every_row: ClassVar[bool] = False
    """Whether rows of zero advantage have a gradient too; elsewhere they are left out of the forward pass."""

    @property
    def reuses_tokens(self) -> bool:
        """Whether several passes over the same tokens have an end: a clip, a weight or a divergence that knows the ratio."""
        return True

    def mark(self, tokens: UpdateTokens, seed: int) -> Bool[Tensor, "B T"]:
        """Tokens of the whole update that the loss treats differently: none, unless it says so.

        Asked for once before the update is split, so that the choice does not depend on micro-batches.
        """
        return torch.zeros_like(tokens.action_mask)

    @abstractmethod
    def __call__(self, inputs: LossInputs) -> LossOutputs:
        """The micro-batch's share of the update's loss."""


def metrics_of(inputs: LossInputs, clipped: Bool[Tensor, "B T"]) -> LossMetrics:
    """What every loss logs."""
    mask = inputs.action_mask
    gap = torch.where(mask, inputs.policy_logprobs.detach() - inputs.behaviour_logprobs, 0.0).abs()
    return LossMetrics(
        num_tokens=mask.sum().float(),
        num_clipped=(mask & clipped).sum().float(),
        sum_logprob_gap=gap.sum(),
        max_logprob_gap=gap.max() if gap.numel() else gap.sum(),
    )


def check_clip(**shifts: float) -> None:
    """Raise `ConfigError` for a range around a ratio of 1 that is none."""
    for key, value in shifts.items():
        if not value >= 0:
            raise ConfigError(f"model.loss.{key}", value, "at least 0", "It is how far from 1 a ratio may be.")
