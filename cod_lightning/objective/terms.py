"""What the objective has beside the policy loss: divergences from other models, and entropy.

    loss = policy loss + sum over terms of coefficient / (action tokens of the update) * (sum over tokens of the term)

A term names the models whose log-probs it needs; `training/scorers.py` computes those once for each rollout. To add a term:
one frozen dataclass, named in `model.terms`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cod_lightning.errors import ConfigError, answering
from cod_lightning.ranges import Positive

In = TypeVar("In")
Out = TypeVar("Out")

REFERENCE = "reference"
"""Name of the policy as it was when training began; every other name is a key of `model.scorers`."""
LARGEST = 30.0
"""Log-ratios beyond it count as it (e^30 = 1e13), so that one token cannot make a sum infinite."""

Estimator = Literal["k1", "k2", "k3"]


@dataclass(frozen=True)
class TermInputs:
    """What a term may look at: rows of one micro-batch."""

    policy_logprobs: Float[Tensor, "B T"]
    """Under the trained weights (nats), with gradient."""
    entropies: Float[Tensor, "B T"]
    """Of each action token's distribution (nats), with gradient where a term asks for it."""
    scores: Mapping[str, Float[Tensor, "B T"]]
    """Log-probs under other models (nats), by name; NaN where a model gave none."""
    action_mask: Bool[Tensor, "B T"]
    observation_logprobs: Float[Tensor, "B T"] | None = None
    """Of what came back after the policy's first turn (nats), with gradient, 0 elsewhere; None unless a term `observes`."""


@dataclass(frozen=True, kw_only=True)
class TermSums:
    """Sums over the action tokens of a micro-batch."""

    loss: Float[Tensor, ""]
    """Before the coefficient and the division by the update's tokens."""
    logged: float = 0.0
    """What is logged under `LossTerm.logged_as`, as a mean over tokens with a score."""
    num_missing: int = 0
    """Action tokens without a score, which the term leaves out."""


class LossTerm(ABC):
    """One term; subclasses are frozen dataclasses with a field `coefficient`."""

    coefficient: float
    entropy_gradient: ClassVar[bool] = False
    """Whether entropies are needed with gradient."""
    observes: ClassVar[bool] = False
    """Whether log-probs of observations are needed."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the models whose log-probs the term needs."""
        return ()

    @property
    def logged_as(self) -> str | None:
        """Name of the logged figure, after `train/`; None logs nothing."""
        return None

    def figures(self, sums: TermSums) -> dict[str, float]:
        """The sums by their logged names; tokens without a score are `NAME_missing`, where there can be any."""
        if self.logged_as is None:
            return {}
        missing = {f"{name}_missing": float(sums.num_missing) for name in self.needs if name != REFERENCE}
        return {self.logged_as: sums.logged} | missing

    @abstractmethod
    def __call__(self, inputs: TermInputs) -> TermSums:
        """The term's sums over a micro-batch."""


class Divergence(LossTerm):
    """A term about one other model."""

    to: str
    """The other model: reference, or a key of `model.scorers`."""

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.to,)

    def others(self, inputs: TermInputs) -> tuple[Float[Tensor, "B T"], Bool[Tensor, "B T"], int]:
        """The other model's log-probs of action tokens, 0 where it gave none; which it gave, and how many it did not."""
        known = inputs.action_mask & inputs.scores[self.to].isfinite()
        return torch.where(known, inputs.scores[self.to], 0.0), known, int(inputs.action_mask.sum() - known.sum())


@dataclass(frozen=True, kw_only=True)
class KL(Divergence):
    """Reverse divergence of the policy from another model, per sampled token: sum_t KL(policy || other) at t.

    Estimated on the tokens that the policy sampled, with d = policy - other (nats), by `kl_to_reference`; k2 has the gradient of
    the divergence, E[d grad policy], where the tokens are the policy's own. To the `reference` it is the regulariser of GRPO
    (arXiv 2402.03300). To a teacher it is on-policy distillation (GKD, arXiv 2306.13649, with the student's own samples alone).
    What differs from GKD, and from Qwen3 (arXiv 2505.09388), which aligns logits: the sampled token's log-probs stand for the whole
    distribution, so that a teacher behind a server will do. So they do in "On-Policy Distillation" (Thinking Machines Lab, October
    2025), which takes -d of the sampling weights, undiscounted, for the advantage of an importance-weighted loss; here d is that of
    the weights as they are trained, in a term beside the policy loss. k3 has the gradient of the forward divergence KL(other ||
    policy) by importance weights: unbiased where the tokens are the policy's own, of more variance. Tokens that the teacher gave
    no log-prob are left out and counted (`train/NAME_missing`).
    """

    coefficient: Positive = 0.01
    """Weight of the divergence, above 0."""
    to: str = REFERENCE
    """The other model: reference, or a key of `model.scorers`."""
    estimator: Estimator = "k2"
    """How it is estimated from the sampled tokens."""

    @property
    def logged_as(self) -> str:
        """`divergence` from the reference, `divergence_NAME` from others."""
        return "divergence" if self.to == REFERENCE else f"divergence_{self.to}"

    def __call__(self, inputs: TermInputs) -> TermSums:
        other, known, num_missing = self.others(inputs)
        value = kl_to_reference(inputs.policy_logprobs, other, known, self.estimator)
        return TermSums(loss=value, logged=float(value.detach()), num_missing=num_missing)


@dataclass(frozen=True, kw_only=True)
class EntropyBonus(LossTerm):
    """Minus the entropy of each action token's distribution, which training thereby makes larger."""

    entropy_gradient: ClassVar[bool] = True
    coefficient: Positive = 0.001
    """Weight of the mean entropy (nats), above 0."""

    def __call__(self, inputs: TermInputs) -> TermSums:
        """Entropies are 0 where no action token is."""
        return TermSums(loss=-inputs.entropies.sum())


def means(terms: Sequence[LossTerm], sums: Mapping[str, float], num_tokens: float) -> dict[str, float]:
    """Sums of all `LossTerm.figures` over so many action tokens as means: of a term over those that it does not leave out.

    It has no figure where it leaves out all of them.
    """
    found = {name: value / num_tokens for name, value in sums.items()}
    for term in terms:
        missing = max((sums.get(f"{name}_missing", 0.0) for name in term.needs), default=0.0)
        if missing and term.logged_as in found:
            del found[term.logged_as]
            if missing < num_tokens:
                found[term.logged_as] = sums[term.logged_as] / (num_tokens - missing)
    return found


def kl_to_reference(
    policy_logprobs: Float[Tensor, "B T"],
    reference_logprobs: Float[Tensor, "B T"],
    action_mask: Bool[Tensor, "B T"],
    estimator: Estimator = "k2",
) -> Float[Tensor, ""]:
    """Sum over action tokens of an estimator of KL(policy || reference) (nats); divide by the update's token count.

    With d = policy - reference: k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d (http://joschu.net/blog/kl-approx.html).

    As values k1 and k3 are unbiased and k2 is not; as gradients k2's expectation is that of the divergence when the tokens
    were sampled from the policy, k3's (GRPO's choice) that of KL(reference || policy), and k1's is 0: as a loss it would
    be noise. So k1 here has its own value and k2's gradient. In k3 exp(-d) counts as e^30 at most, in value and gradient.

    >>> kl_to_reference(torch.tensor([[-1.0, -9.0]]), torch.tensor([[-2.0, 0.0]]), torch.tensor([[True, False]]))
    tensor(0.5000)
    """
    gap = torch.where(action_mask, policy_logprobs - reference_logprobs, 0.0)  # masked first: 0 * inf is NaN backwards
    if estimator == "k3":
        bounded = gap.detach().clamp_min(-LARGEST) + gap - gap.detach()  # the gradient is that at the bound
        return (torch.expm1(-bounded) + bounded).sum()
    half_square = 0.5 * (gap**2).sum()
    return half_square if estimator == "k2" else half_square - half_square.detach() + gap.detach().sum()


def check_terms(terms: Sequence[LossTerm], scorers: Collection[str]) -> None:
    """Raise `ConfigError` for terms without a coefficient, or of a model that is not there, or that has the name of another;
    `scorers` are the names of models."""
    if REFERENCE in scorers:
        expected = "another name, since reference is the policy as it was when training began"
        raise ConfigError("model.scorers", REFERENCE, expected, "Rename it.")
    for term in terms:
        if not hasattr(term, "coefficient"):
            expected = "a frozen dataclass with a field `coefficient`"
            raise ConfigError("model.terms", type(term).__name__, expected, "Add the field.")
        if unknown := sorted(set(term.needs) - {REFERENCE, *scorers}):
            expected = f"reference or a key of model.scorers ({', '.join(sorted(scorers)) or 'none'})"
            key = f"model.terms.{type(term).__name__}"
            raise ConfigError(key, unknown[0], expected, "Add the model under model.scorers.")


def made(part: Callable[[In], Out], inputs: In, key: str, kind: type[Out]) -> Out:
    """What a loss or a term makes of a micro-batch. Raises `ConfigError` where it raises, or makes another kind of thing."""
    refused = partial(ConfigError, key, type(part).__name__, remedy="Correct it.")
    try:
        out = part(inputs)
        if isinstance(out, kind):
            return out
        raise TypeError(f"it returns a {type(out).__name__}")
    except torch.OutOfMemoryError:
        raise
    except Exception:
        with answering(refused, f"one that returns {kind.__name__}"):
            raise
