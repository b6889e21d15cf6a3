"""Bootstrap intervals over packs: how far a mean would move, had other packs been drawn.

A pack is the unit that is resampled: its N positions come and go together, because what happens at one position depends
on the ones before. The intervals speak about packs only, not about other training runs. They are percentile intervals:
simple, slightly narrow for few packs, and of width 0 where all packs agree.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from cod_lightning.evaluation.outcomes import Outcomes, position_means
from cod_lightning.evaluation.schema import Figure, Interval

_RESAMPLES = 2_000
_CHUNK = 250
"""Resamples held in memory at a time."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its 95 % interval; all three are NaN where nothing was observed."""

    mean: float
    low: float
    high: float
    num: int
    """Packs behind it."""

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
    values: Float[np.ndarray, "P M"], contrasts: Float[np.ndarray, "S M"], *, seed: int = 0
) -> tuple[Estimate, ...]:
    """One estimate for each row c of `contrasts`: the statistic sum_m c_m * (mean over packs of values[:, m]).

    NaN values are missing: they leave a column's mean, and a contrast needs only the columns with c_m != 0. A resample
    in which such a column is wholly missing does not count.

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13 (percentile interval).
    """
    present = ~np.isnan(values)
    means = np.concatenate(list(_resampled_means(np.where(present, values, 0.0), present, seed)))
    counts = [int(present[:, used].any(axis=1).sum()) for used in contrasts != 0]
    return tuple(
        _estimate(position_means(values[:, used]), means[:, used], contrast[used], count)
        for contrast, used, count in zip(contrasts, contrasts != 0, counts, strict=True)
    )


def position_estimates(values: Float[np.ndarray, "P N"], *, seed: int = 0) -> tuple[Estimate, ...]:
    """The mean at each position."""
    return bootstrap(values, np.eye(values.shape[1]), seed=seed)


def mean_estimate(values: Float[np.ndarray, "P N"], *, seed: int = 0) -> Estimate:
    """The mean over positions of the means at each position."""
    num_positions = values.shape[1]
    return bootstrap(values, np.full((1, num_positions), 1 / num_positions), seed=seed)[0]


def gain_estimate(values: Float[np.ndarray, "P N"], *, seed: int = 0) -> Estimate:
    """The mean at the last position minus the mean at the first, paired within packs.

    >>> gain_estimate(np.array([[0.0, 1.0], [0.0, 1.0]]))
    Estimate(mean=1.0, low=1.0, high=1.0, num=2)
    """
    return bootstrap(values[:, [0, -1]], np.array([[-1.0, 1.0]]), seed=seed)[0]


def ratio_estimate(
    values: Float[np.ndarray, "P M"],
    numerator: Float[np.ndarray, " M"],
    denominator: Float[np.ndarray, " M"],
    *,
    seed: int = 0,
) -> Estimate:
    """The ratio of two statistics sum_m c_m * (mean over packs of values[:, m]); unknown where the denominator is not above 0.

    A resample whose denominator is not above 0 does not count.

    >>> ratio_estimate(np.array([[0.5, 1.0], [0.5, 3.0]]), np.array([1.0, 0.0]), np.array([0.0, 1.0])).mean
    0.25
    """
    present = ~np.isnan(values)
    resampled = np.concatenate(list(_resampled_means(np.where(present, values, 0.0), present, seed)))
    means, num = position_means(values), int(present.any(axis=1).sum())
    if not means @ denominator > 0:
        return Estimate(math.nan, math.nan, math.nan, num)
    below = resampled @ denominator
    ratios = (resampled @ numerator)[below > 0] / below[below > 0]
    low, high = np.percentile(ratios, (2.5, 97.5)) if len(ratios) else (math.nan, math.nan)
    return Estimate(float(means @ numerator / (means @ denominator)), float(low), float(high), num)


def success_difference(minuend: Outcomes, subtrahend: Outcomes) -> Float[np.ndarray, "P N"]:
    """Success of one policy minus success of another on the same packs; NaN where either is missing.

    `mean_estimate` of it is the paired difference in the mean over positions, `gain_estimate` that of the gains. Packs
    are matched by id; those that only one side has are left out. Raises `ValueError` where no pack is shared.
    """
    known = set(subtrahend.pack_ids)
    shared = [pack_id for pack_id in minuend.pack_ids if pack_id in known]
    if not shared or minuend.num_positions != subtrahend.num_positions:
        raise ValueError(
            f"{len(shared)} packs are shared, of {minuend.num_positions} and {subtrahend.num_positions} tasks; "
            "a paired difference needs both policies on the same packs"
        )
    return minuend.rows(shared).success - subtrahend.rows(shared).success


def _resampled_means(
    filled: Float[np.ndarray, "P M"], present: Bool[np.ndarray, "P M"], seed: int
) -> Iterator[Float[np.ndarray, "R M"]]:
    """Column means [R M] under multinomial weights of the packs, a chunk of resamples at a time."""
    rng = np.random.default_rng(seed)
    num_packs = len(filled)
    counted = present.astype(np.float64)
    offsets = num_packs * np.arange(_CHUNK)[:, None]
    for _ in range(_RESAMPLES // _CHUNK):
        drawn = rng.integers(num_packs, size=(_CHUNK, num_packs)) + offsets
        weights = np.bincount(drawn.ravel(), minlength=_CHUNK * num_packs).reshape(_CHUNK, num_packs).astype(np.float64)
        counts = weights @ counted
        yield np.where(counts > 0, weights @ filled / np.maximum(counts, 1), np.nan)


def _estimate(
    means: Float[np.ndarray, " M"], resampled: Float[np.ndarray, "R M"], contrast: Float[np.ndarray, " M"], num: int
) -> Estimate:
    statistics = resampled @ contrast
    statistics = statistics[~np.isnan(statistics)]
    mean = float(np.dot(means, contrast))
    if math.isnan(mean) or not len(statistics):
        return Estimate(math.nan, math.nan, math.nan, num)
    low, high = np.percentile(statistics, (2.5, 97.5))
    return Estimate(mean, float(low), float(high), num)
