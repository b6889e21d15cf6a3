"""Bootstrap intervals over hidden rules: how far a mean would move, had other rules been drawn, with other packs.

The unit that is resampled is a hidden rule with all its packs, since packs of one rule succeed and fail together; where every pack
has a rule of its own, or all have one, it is the pack. Its N positions come and go together, because what happens at one depends
on the ones before. The intervals do not speak about other training runs.

They are expanded percentile intervals: of n units, the ends are the percentiles that Student's t with n - 1 degrees of freedom and
the factor sqrt(n / (n - 1)) ask for, which plain percentiles miss where units are few; of 2 to 4 units, Student's interval itself.
Where all resamples agree there is no spread to see, and the interval is that of the rule of three: as large a share of units as
may have been missed takes the furthest value there is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from cod_lightning.evaluation.outcomes import position_means
from cod_lightning.evaluation.schema import Figure, Interval

_RESAMPLES = 2_000
_CHUNK = 250
"""Resamples held in memory at a time."""
_TAIL = 0.025
"""Probability beyond each end."""

Limits = tuple[float, float] | None
"""The least and the largest value that there can be; None where that is not known."""
SHARE: Limits = (0.0, 1.0)
"""Limits of a success."""
DIFFERENCE: Limits = (-1.0, 1.0)
"""Limits of the difference of two successes."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval; all three are NaN where nothing was observed."""

    mean: float
    low: float
    """NaN, as is the other end, where a single unit, or units that agree on a value without limits, show no spread."""
    high: float
    num: int
    """Packs behind it."""
    p_value: float = math.nan
    """Two-sided, of the mean being 0; NaN where it was not computed."""

    @property
    def known(self) -> float | None:
        """The mean; None where nothing was observed."""
        return None if math.isnan(self.mean) else self.mean

    @property
    def ci95(self) -> Interval:
        """The interval; None where there is none."""
        return None if math.isnan(self.low) else [self.low, self.high]

    def figure(self) -> Figure:
        """As it stands in a file."""
        return Figure(mean=self.known, ci95=self.ci95, n=self.num)


def bootstrap(
    values: Float[np.ndarray, "P M"],
    contrasts: Float[np.ndarray, "S M"],
    *,
    rules: Sequence[str] = (),
    limits: Limits = None,
    seed: int = 0,
) -> tuple[Estimate, ...]:
    """One estimate for each row c of `contrasts`: the statistic sum_m c_m * (mean over packs of values[:, m]).

    NaN values are missing: they leave a column's mean, and a contrast needs only the columns with c_m != 0. A resample
    in which such a column is wholly missing does not count. `rules` [P] says which packs hide the same (without it, none do),
    `limits` what values a column can have.

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13 (percentiles); Hesterberg, "What Teachers
    Should Know about the Bootstrap" (arXiv 1411.5279; expanded percentiles); Davison and Hinkley, "Bootstrap Methods and their
    Application" (1997), section 3.8 (whole groups are resampled: packs drawn anew within them would count twice).
    """
    means, present, units = _resampled(values, rules, seed)
    found: list[Estimate] = []
    for contrast in contrasts:
        used = contrast != 0
        there = present[:, used].any(axis=1)
        ends = None if limits is None else np.sort(np.outer(contrast, limits), axis=1).sum(axis=0).tolist()
        mean = float(np.dot(position_means(values[:, used]), contrast[used]))
        found.append(_estimate(mean, means[:, used] @ contrast[used], units[there], ends))
    return tuple(found)


def position_estimates(
    values: Float[np.ndarray, "P N"], *, rules: Sequence[str] = (), limits: Limits = None, seed: int = 0
) -> tuple[Estimate, ...]:
    """The mean at each position."""
    return bootstrap(values, np.eye(values.shape[1]), rules=rules, limits=limits, seed=seed)


def _resampled(
    values: Float[np.ndarray, "P M"], rules: Sequence[str], seed: int
) -> tuple[Float[np.ndarray, "R M"], Bool[np.ndarray, "P M"], Int[np.ndarray, " P"]]:
    """Column means under multinomial weights of the units; which values are present; which unit, 0 .. n - 1, a pack belongs to:
    that of its rule, or, without rules or where all have one, its own."""
    present = ~np.isnan(values)
    numbers = {rule: n for n, rule in enumerate(dict.fromkeys(rules))}
    units = np.array([numbers[rule] for rule in rules]) if len(numbers) > 1 else np.arange(len(values))
    num_units = int(units.max()) + 1 if len(units) else 0
    sums, counted = (np.zeros((num_units, values.shape[1])) for _ in range(2))
    np.add.at(sums, units, np.where(present, values, 0.0))
    np.add.at(counted, units, present)
    means = []
    for drawn in _weights(num_units, seed):
        weights = drawn.astype(np.float64)
        counts = weights @ counted
        means.append(np.where(counts > 0, weights @ sums / np.maximum(counts, 1), np.nan))
    return np.concatenate(means), present, units


@lru_cache(maxsize=1)
def _weights(num_units: int, seed: int) -> list[Int[np.ndarray, "C n"]]:
    """How often each resample draws each of the units, chunk by chunk; many figures are of the same resamples."""
    rng, offsets = np.random.default_rng(seed), num_units * np.arange(_CHUNK)[:, None]
    drawn = (rng.integers(num_units, size=(_CHUNK, num_units)) + offsets for _ in range(_RESAMPLES // _CHUNK))
    counts = (np.bincount(one.ravel(), minlength=_CHUNK * num_units) for one in drawn)
    return [one.astype(np.uint16).reshape(_CHUNK, num_units) for one in counts]


def _estimate(
    mean: float, resampled: Float[np.ndarray, " R"], units: Int[np.ndarray, " P"], limits: Limits
) -> Estimate:
    """Of packs of these units."""
    resampled, num, num_units = resampled[~np.isnan(resampled)], len(units), len(np.unique(units))
    if math.isnan(mean) or not len(resampled):
        return Estimate(math.nan, math.nan, math.nan, num)
    if num_units < 2:
        return Estimate(mean, math.nan, math.nan, num)
    spread = -stats.t.ppf(_TAIL, num_units - 1) * math.sqrt(num_units / (num_units - 1))
    """In standard deviations."""
    tail = float(stats.norm.sf(spread))
    low, high = np.percentile(resampled, (100 * tail, 100 * (1 - tail)))
    if high - low < 1e-9:
        missed = 1 - _TAIL ** (1 / num_units)
        low, high = (mean + missed * (end - mean) for end in limits or (math.nan, math.nan))
    elif tail * _RESAMPLES < 1:  # of 2 to 4 units there are too few different resamples
        least, most = limits or (-math.inf, math.inf)
        low, high = (max(least, mean - spread * resampled.std()), min(most, mean + spread * resampled.std()))
    return Estimate(mean, float(low), float(high), num)
