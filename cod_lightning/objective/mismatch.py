"""What an engine samples from is not quite the policy that is trained: its kernels, precision or weights differ a little.

With d_t = old_t - behaviour_t, the training forward's log-prob of a sampled token, by the weights that sampled it, less the
engine's own (nats), exp(d_t) corrects the expectation, and its size says how far apart the two are. Old policy, not current:
how far training has moved since is the loss's own ratio, which with a correction is policy / old.

Where rollouts are played ahead (`data.max_staleness`) the weights that sampled are gone when training on it begins. Old are then
those at its first update, and d is the lag and the engine together; a correction makes of the loss the decoupled one of Hilton
et al. 2021 (arXiv 2110.00641), as AReaL has it (arXiv 2505.24298), its weight bounded.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cod_lightning.objective.losses.base import Level, LossInputs, log_ratio, units_of
from cod_lightning.ranges import Positive

_NAMES = ("logprob_gap", "mismatch_kl", "mismatch_ess")
_LARGEST = 20.0
"""Log-ratios beyond it count as it (e^20 = 5e8), so that one token cannot make a sum infinite."""


def mismatch_figures(sums: Mapping[str, float], *, ahead: bool = False) -> dict[str, float]:
    """What is logged of `mismatch_sums`, nothing without tokens; under other names where rollouts are played ahead, so that d is
    not the engine's doing alone.

    `mismatch_kl` estimates KL(engine || training) in nats by the mean of k3 = exp(d) - 1 - d, which is never negative
    (http://joschu.net/blog/kl-approx.html). `mismatch_ess` is the effective sample size as a share of the tokens,
    (sum w)^2 / (num sum w^2) with w = exp(d): 1 where the two agree.
    """
    if not (num := sums["tokens"]):
        return {}
    gap, kl, ess = ("staleness_gap", "staleness_kl", "staleness_ess") if ahead else _NAMES
    return {
        gap: sums["gap"] / num,
        f"max_{gap}": sums["max_gap"],
        kl: sums["k3"] / num,
        ess: sums["weight"] ** 2 / (num * sums["squared_weight"]),
    }


class MismatchCorrection(ABC):
    """Weights of sampled tokens. They multiply advantages, in vain where a loss sees signs alone, as `NFT`; denominators stay."""

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

    max_weight: Positive = 2.0
    """Largest weight of a token."""

    def __call__(self, sampled: LossInputs) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        weights = ratios(sampled, self.level)
        return weights.clamp_max(self.max_weight), weights


@dataclass(frozen=True, kw_only=True)
class SequenceTruncate(TokenTruncate):
    """Every token of an episode has w_e = min(exp(sum of d over the episode's tokens), max_weight).

    Source: sequence-level importance sampling between engine and training (Liu et al. 2025, "When speed kills stability").
    What differs: a sequence is an episode with all its turns. Unlike a token's, this weight is unbiased but for the bound; its
    variance grows with the length.
    """

    level: ClassVar[Level] = "episode"
    max_weight: Positive = 2.0
    """Largest weight of an episode."""


@dataclass(frozen=True, kw_only=True)
class SequenceMask(MismatchCorrection):
    """Every token of an episode has w_e = exp(sum of d) where that is at most max_weight, else 0.

    Source: as `SequenceTruncate`, its masked variant.
    """

    level: ClassVar[Level] = "episode"
    max_weight: Positive = 2.0
    """Largest weight of an episode that is kept."""

    def __call__(self, sampled: LossInputs) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        return kept_within(ratios(sampled, self.level), 0.0, self.max_weight)


def corrected(
    inputs: LossInputs, old_logprobs: Float[Tensor, "B T"], correction: MismatchCorrection
) -> tuple[LossInputs, float]:
    """What the loss is to look at: its ratio is policy / old, advantages are multiplied by the weights; and how many tokens were
    cut or taken away."""
    sampled = replace(inputs, policy_logprobs=old_logprobs.detach())
    weights, unbounded = correction(sampled)
    num_corrected = float(((weights != unbounded) & inputs.action_mask).sum())
    advantages = inputs.advantages * weights.detach()
    return replace(inputs, behaviour_logprobs=sampled.policy_logprobs, advantages=advantages), num_corrected


def mismatch_sums(
    inputs: LossInputs, old_logprobs: Float[Tensor, "B T"], measured: Bool[Tensor, " B"] | None = None
) -> dict[str, float]:
    """Sums over tokens, and the largest |d|, of how far apart engine and training are in the measured rows, all of them by default:
    in replayed ones d comes of their age."""
    mask = inputs.action_mask if measured is None else inputs.action_mask & measured[:, None]
    sampled = replace(inputs, policy_logprobs=old_logprobs.detach(), action_mask=mask)
    d = log_ratio(sampled)[sampled.action_mask].double()
    weight = d.clamp(-_LARGEST, _LARGEST).exp()
    return {
        "tokens": float(d.numel()),
        "gap": float(d.abs().sum()),
        "max_gap": float(d.abs().max()) if d.numel() else 0.0,
        "k3": float((weight - 1 - d.clamp(-_LARGEST, _LARGEST)).sum()),
        "weight": float(weight.sum()),
        "squared_weight": float((weight**2).sum()),
    }


def ratios(sampled: LossInputs, level: Level) -> Float[Tensor, "B T"]:
    """exp of each unit's summed log-ratio, at its tokens."""
    units = units_of(level, sampled)
    return units.spread(units.sum(log_ratio(sampled)).clamp(-_LARGEST, _LARGEST).exp())


def kept_within(
    weights: Float[Tensor, "B T"], low: float, high: float
) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
    """Those within the bounds, 0 in place of the others; and all of them."""
    return torch.where((weights >= low) & (weights <= high), weights, 0.0), weights
