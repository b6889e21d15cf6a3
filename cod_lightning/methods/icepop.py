"""Tokens of which engine and training think otherwise have no gradient."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from cod_lightning.objective.losses.base import LossInputs
from cod_lightning.objective.mismatch import MismatchCorrection, kept_within, ratios
from cod_lightning.ranges import AtLeastOne, Share


@dataclass(frozen=True, kw_only=True)
class TokenMask(MismatchCorrection):
    """w_t = exp(d_t) where it is in [min_ratio, max_ratio], else 0: the token has no gradient.

    Source: IcePop (arXiv 2510.18855), whose bounds are 0.5 and 5. What differs: any loss may follow.
    """

    min_ratio: Share = 0.5
    """Smallest ratio of a token that is kept."""
    max_ratio: AtLeastOne = 5.0
    """Largest ratio of a token that is kept."""

    def __call__(self, sampled: LossInputs) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        return kept_within(ratios(sampled, self.level), self.min_ratio, self.max_ratio)
