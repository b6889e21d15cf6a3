"""Adaptive RED weights: when negative advantages outweigh positive ones, tilt both until they balance."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cod_lightning.errors import ConfigError, check_at_least, check_between, check_positive


@dataclass(frozen=True, kw_only=True)
class AdaptiveRED:
    """Replaces s by s * exp(s / T) when sum_e s_e n_e < 0, with T such that sum_e s_e exp(s_e / T) n_e is about 0.

    n_e is the episode's number of action tokens; the sum runs over the whole rollout. The tilted sum falls as T rises, so
    T is found by bisection; it may end at a bound. Source: arXiv 2606.20002. Ours triggers only clearly below 0, because
    with equal lengths a centred sum is rounding noise of either sign.

    >>> two = torch.ones(1, 2, 1, dtype=torch.bool)
    >>> AdaptiveRED()(torch.tensor([[[0.5], [-0.5]]]), torch.tensor([[[1], [2]]]), two)[0].flatten()
    tensor([ 0.7052, -0.3545])
    """

    min_temperature: float = 0.8
    """Strongest tilt."""
    max_temperature: float = 100.0
    """Weakest tilt."""
    tolerance: float = 0.05
    """Width of the bisection interval at which it stops."""
    max_rounds: int = 20
    """Halvings at most."""
    trigger: float = 1e-6
    """The sum counts as negative below -trigger * sum_e |s_e n_e|."""

    def __post_init__(self) -> None:
        for key in ("max_temperature", "tolerance"):
            check_positive(f"model.reweight.{key}", getattr(self, key), "Leave it out for the default.")
        check_at_least("model.reweight.max_rounds", self.max_rounds, 1, "20 is the default.")
        check_between("model.reweight.trigger", self.trigger, 0, 1, "1e-6 is the default.")
        if not 0 < self.min_temperature < self.max_temperature:
            raise ConfigError(
                "model.reweight.min_temperature",
                self.min_temperature,
                f"in (0, {self.max_temperature})",
                "0.8 is the paper's.",
            )

    def __call__(
        self,
        advantages: Float[Tensor, "G K E"],
        counts: Int[Tensor, "G K E"],
        valid: Bool[Tensor, "G K E"],
    ) -> tuple[Float[Tensor, "G K E"], float]:
        """Tilted advantages of a rollout, that of all ranks, and T; 0 where they were left alone."""
        s = torch.where(valid, advantages, 0.0).double()
        n = counts.double()

        def tilted_sum(temperature: float) -> float:
            return float((s * torch.exp(s / temperature) * n).sum())

        if float((s * n).sum()) >= -self.trigger * float((s * n).abs().sum()):
            return advantages, 0.0
        low, high = self.min_temperature, self.max_temperature
        for _ in range(self.max_rounds):
            if high - low < self.tolerance:
                break
            middle = (low + high) / 2
            if tilted_sum(middle) > 0:
                low = middle
            else:
                high = middle
        temperature = (low + high) / 2
        return (s * torch.exp(s / temperature)).to(advantages), temperature
