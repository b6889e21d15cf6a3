"""What an engine samples from is not quite the policy that is trained: its kernels, precision or weights differ a little.

With d_t = old_t - behaviour_t, the training forward's log-prob of a sampled token, by the weights that sampled it, less the
engine's own (nats), exp(d_t) corrects the expectation, and its size says how far apart the two are. Old policy, not current:
how far training has moved since is the loss's own ratio, which with a correction is policy / old.

Where rollouts are played ahead (`data.max_staleness`) the weights that sampled are gone when training on it begins. Old are then
those at its first update, and d is the lag and the engine together; a correction makes of the loss the decoupled one of Hilton
et al. 2021 (arXiv 2110.00641), as AReaL has it (arXiv 2505.24298), its weight bounded.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cod_lightning.errors import check_at_least, check_between
from cod_lightning.objective.losses.base import Level, LossInputs, log_ratio, units_of

_NAMES = ("logprob_gap", "mismatch_kl", "mismatch_ess")
_LARGEST = 20.0
"""Log-ratios beyond it count as it (e^20 = 5e8), so that one token cannot make a sum infinite."""


@dataclass(frozen=True, kw_only=True)
class MismatchSums:
    """Sums over action tokens, so that adding over micro-batches is right."""

    num_tokens: float
    sum_gap: float
    """Of |d| (nats)."""
    max_gap: float
    """Largest |d|; combined by maximum."""
    sum_k3: float
    """Of exp(d) - 1 - d."""
    sum_weight: float
    """Of exp(d)."""
    sum_squared_weight: float
    num_corrected: float
    """Tokens whose weight was cut or taken away."""

    def __add__(self, other: "MismatchSums") -> "MismatchSums":
        added = {name: value + getattr(other, name) for name, value in vars(self).items()}
        return MismatchSums(**added | {"max_gap": max(self.max_gap, other.max_gap)})

    def figures(self, *, ahead: bool = False) -> dict[str, float]:
        """What is logged, nothing without tokens; under other names where rollouts are played ahead, so that d is not the
        engine's doing alone.

        `mismatch_kl` estimates KL(engine || training) in nats by the mean of k3 = exp(d) - 1 - d, which is never negative
        (http://joschu.net/blog/kl-approx.html). `mismatch_ess` is the effective sample size as a share of the tokens,
        (sum w)^2 / (num sum w^2) with w = exp(d): 1 where the two agree.
        """
        if not (num := self.num_tokens):
            return {}
        gap, kl, ess = ("staleness_gap", "staleness_kl", "staleness_ess") if ahead else _NAMES
        return {
            gap: self.sum_gap / num,
            f"max_{gap}": self.max_gap,
            kl: self.sum_k3 / num,
            ess: self.sum_weight**2 / (num * self.sum_squared_weight),
        }


class MismatchCorrection(ABC):
    """Weights for sampled tokens, which multiply their advantages. Denominators stay as they are."""

    level: ClassVar[Level] = "token"
    """What has one weight."""

    @abstractmethod
    def __call__(self, sampled: LossInputs) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Weights of action tokens, 0 elsewhere, and what they would be without a bound.

        `sampled.policy_logprobs` are the old policy's.
        """


@dataclass(frozen=True, kw_only=True)
class TokenTruncate(MismatchCorrection):
    """w_t = min(exp(d_t), max_weight).

    Source: truncated importance sampling between engine and training (Yao et al. 2025, "Your efficient RL framework secretly
    brings you off-policy RL training"); their bound is 2.
    """

    max_weight: float = 2.0
    """Largest weight of a token."""

    def __post_init__(self) -> None:
        _check_bounds(self.max_weight)

    def __call__(self, sampled: LossInputs) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        weights = _weights(sampled, self.level)
        return weights.clamp_max(self.max_weight), weights


@dataclass(frozen=True, kw_only=True)
class TokenMask(MismatchCorrection):
    """w_t = exp(d_t) where it is in [min_weight, max_weight], else 0: the token has no gradient.

    Source: IcePop (arXiv 2510.18855), whose bounds are 0.5 and 5.
    """

    min_weight: float = 0.5
    """Smallest weight that is kept."""
    max_weight: float = 5.0
    """Largest weight that is kept."""

    def __post_init__(self) -> None:
        _check_bounds(self.max_weight, self.min_weight)

    def __call__(self, sampled: LossInputs) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        weights = _weights(sampled, self.level)
        return torch.where((weights >= self.min_weight) & (weights <= self.max_weight), weights, 0.0), weights


@dataclass(frozen=True, kw_only=True)
class SequenceTruncate(TokenTruncate):
    """Every token of an episode has w_e = min(exp(sum of d over the episode's tokens), max_weight).

    Source: sequence-level importance sampling between engine and training (Liu et al. 2025, "When speed kills stability").
    What differs: a sequence is an episode with all its turns. Unlike a token's, this weight is unbiased but for the bound; its
    variance grows with the length.
    """

    level: ClassVar[Level] = "episode"
    max_weight: float = 2.0
    """Largest weight of an episode."""


@dataclass(frozen=True, kw_only=True)
class SequenceMask(TokenMask):
    """Every token of an episode has w_e = exp(sum of d) where that is in [min_weight, max_weight], else 0.

    Source: as `SequenceTruncate`, its masked variant; the lower bound is ours (0 has none).
    """

    level: ClassVar[Level] = "episode"
    min_weight: float = 0.0
    """Smallest weight that is kept."""
    max_weight: float = 2.0
    """Largest weight that is kept."""


def corrected(
    inputs: LossInputs,
    old_logprobs: Float[Tensor, "B T"],
    correction: MismatchCorrection | None,
    measured: Bool[Tensor, " B"] | None = None,
) -> tuple[LossInputs, MismatchSums]:
    """What the loss is to look at, and how far apart engine and training are. Without a correction the loss sees what it saw.

    With one, its ratio is policy / old, and advantages are multiplied by the weights. Rows that are not `measured` (replayed ones,
    whose d comes of their age) are corrected alike and left out of the sums.
    """
    sampled = replace(inputs, policy_logprobs=old_logprobs.detach())
    mask = inputs.action_mask if measured is None else inputs.action_mask & measured[:, None]
    sums = mismatch_sums(replace(sampled, action_mask=mask))
    if correction is None:
        return inputs, sums
    weights, unbounded = correction(sampled)
    num_corrected = float(((weights != unbounded) & inputs.action_mask).sum())
    weighed = replace(
        inputs, behaviour_logprobs=sampled.policy_logprobs, advantages=inputs.advantages * weights.detach()
    )
    return weighed, replace(sums, num_corrected=num_corrected)


def mismatch_sums(sampled: LossInputs) -> MismatchSums:
    """Of a micro-batch whose `policy_logprobs` are the old policy's."""
    d = log_ratio(sampled)[sampled.action_mask].double()
    weight = d.clamp(-_LARGEST, _LARGEST).exp()
    return MismatchSums(
        num_tokens=float(d.numel()),
        sum_gap=float(d.abs().sum()),
        max_gap=float(d.abs().max()) if d.numel() else 0.0,
        sum_k3=float((weight - 1 - d.clamp(-_LARGEST, _LARGEST)).sum()),
        sum_weight=float(weight.sum()),
        sum_squared_weight=float((weight**2).sum()),
        num_corrected=0.0,
    )


def _weights(sampled: LossInputs, level: Level) -> Float[Tensor, "B T"]:
    """exp of each unit's summed log-ratio, at its tokens."""
    units = units_of(level, sampled)
    return units.spread(units.sum(log_ratio(sampled)).clamp(-_LARGEST, _LARGEST).exp())


def _check_bounds(max_weight: float, min_weight: float = 0.0) -> None:
    check_at_least("model.mismatch.max_weight", max_weight, 1, "A token on which both agree has 1.")
    check_between("model.mismatch.min_weight", min_weight, 0, 1, "A token on which both agree has 1.")
