"""What is believed about a plant's two hidden numbers, and how a run sharpens it."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

EXACT = 0.0005
"""Least standard error of an estimate from tables with three decimals."""
_ROUNDING = 0.0006
"""Standard error of one equation due to such tables."""
_SURPRISE = 25.0
"""Mean squared misfit, in units of what is expected, from which an old belief is dropped."""


@dataclass(frozen=True, slots=True)
class PlantBelief:
    """Means and standard errors of a and b."""

    a: float
    b: float
    a_error: float = EXACT
    b_error: float = EXACT

    @property
    def knows_b(self) -> bool:
        """True if the sign of b is hardly in doubt."""
        return self.b_error < 0.6 * abs(self.b)


@dataclass(frozen=True, slots=True)
class PlantRanges:
    """The known bounds of the hidden numbers, and the noise."""

    a_min: float = 0.55
    a_max: float = 1.2
    b_min: float = 0.35
    """Of the magnitude of b; either sign is as likely."""
    b_max: float = 1.5
    noise: float = 0.0
    """Standard deviation of what is added to the velocity at each step."""

    @property
    def prior(self) -> PlantBelief:
        """Before anything is known."""
        spread = max(2 * EXACT, (self.a_max - self.a_min) / math.sqrt(12))
        square = (self.b_min**2 + self.b_min * self.b_max + self.b_max**2) / 3
        return PlantBelief((self.a_min + self.a_max) / 2, 0.0, spread, math.sqrt(square))

    def knows_a(self, belief: PlantBelief) -> bool:
        """True if a run has narrowed a."""
        return belief.a_error < 0.75 * self.prior.a_error

    def draw(self, rng: random.Random) -> tuple[float, float]:
        """a and b with three decimals, so that tables show them exactly."""
        a = round(rng.uniform(self.a_min, self.a_max), 3)
        return a, round(rng.choice((-1, 1)) * rng.uniform(self.b_min, self.b_max), 3)


def learned(old: PlantBelief, ranges: PlantRanges, vs: Sequence[float], us: Sequence[float]) -> PlantBelief:
    """A belief after a run with velocities v_0..v_T and controls u_0..u_{T-1}: least squares with the old belief as prior.

    Where the run contradicts the old belief plainly, as after a change of the hidden rule, it is judged alone.
    """
    sigma = math.hypot(ranges.noise, _ROUNDING)
    rows, after = np.column_stack([vs[:-1], us]), np.asarray(vs[1:])
    misfit = after - rows @ np.array([old.a, old.b])
    expected = sigma**2 + (rows**2) @ np.array([old.a_error**2, old.b_error**2])
    if float(np.mean(misfit**2 / expected)) > _SURPRISE:
        old = ranges.prior
    weights = np.diag([old.a_error**-2, old.b_error**-2])
    covariance = np.linalg.inv(rows.T @ rows / sigma**2 + weights)
    mean = covariance @ (rows.T @ after / sigma**2 + weights @ np.array([old.a, old.b]))
    errors = np.maximum(np.sqrt(np.diag(covariance)), EXACT)
    return PlantBelief(float(mean[0]), float(mean[1]), float(errors[0]), float(errors[1]))
