"""Intervals over training runs and packs at once: how far a mean would move, had other seeds and other packs been drawn."""

import math

import numpy as np
from jaxtyping import Float
from scipy import stats

from cod_lightning.evaluation.intervals import Estimate


def crossed_estimate(values: Float[np.ndarray, "S P"]) -> Estimate:
    """The mean over S seeds and P packs that every seed has met, with its 95 % interval; rows and columns are random effects.

    y_sp = mu + a_s + b_p + e_sp, so Var(mean) = var_a / S + var_b / P + var_e / (S P). The three are estimated from the mean
    squares of the two-way table, var_a = (MS_a - MS_e) / P and var_b = (MS_b - MS_e) / S, a negative one counting as 0; the
    interval is mean +- t * sqrt(Var) with Satterthwaite's degrees of freedom. With few seeds it is wide, as it must be (a bootstrap
    of five seeds is too narrow). With one seed it speaks about packs only. Packs that miss a value for a seed are left out.

    Source: Satterthwaite, "An Approximate Distribution of Estimates of Variance Components" (1946); Searle, Casella and McCulloch,
    "Variance Components" (1992), chapter 4.

    >>> crossed_estimate(np.array([[0.0, 1.0], [0.0, 1.0]])).mean
    0.5
    """
    whole = values[:, ~np.isnan(values).any(axis=0)]
    num_packs = whole.shape[1]
    if not whole.size:
        return Estimate(math.nan, math.nan, math.nan, num_packs)
    mean = float(whole.mean())
    if num_packs < 2:
        return Estimate(mean, math.nan, math.nan, num_packs)
    variance, freedom = _variance(whole)
    spread = float(stats.t.ppf(0.975, freedom)) * math.sqrt(variance) if variance > 0 else 0.0
    return Estimate(mean, mean - spread, mean + spread, num_packs)


def seed_estimate(values: Float[np.ndarray, " S"]) -> Estimate:
    """The mean over seeds with Student's 95 % interval, for figures that a run has one of; no interval for a single seed."""
    known = values[~np.isnan(values)]
    if len(known) < 2:
        return Estimate(float(known.mean()) if len(known) else math.nan, math.nan, math.nan, len(known))
    mean = float(known.mean())
    spread = float(stats.t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / math.sqrt(len(known)))
    return Estimate(mean, mean - spread, mean + spread, len(known))


def _variance(values: Float[np.ndarray, "S P"]) -> tuple[float, float]:
    """Variance of the mean, and its degrees of freedom."""
    num_seeds, num_packs = values.shape
    mean, of_packs = values.mean(), values.mean(axis=0)
    total = num_seeds * num_packs
    packs_square = num_seeds * float(((of_packs - mean) ** 2).sum()) / (num_packs - 1)
    if num_seeds == 1:
        return packs_square / total, num_packs - 1
    of_seeds = values.mean(axis=1)
    seeds_square = num_packs * float(((of_seeds - mean) ** 2).sum()) / (num_seeds - 1)
    rest = values - of_seeds[:, None] - of_packs + mean
    rest_freedom = (num_seeds - 1) * (num_packs - 1)
    rest_square = float((rest**2).sum()) / rest_freedom
    squares = ((seeds_square, num_seeds - 1), (packs_square, num_packs - 1))
    kept = [(square, freedom) for square, freedom in squares if square > rest_square]
    # the mean's variance times S P is MS_e, plus MS - MS_e for each effect that shows
    terms = [(square, freedom) for square, freedom in kept] + [((1 - len(kept)) * rest_square, rest_freedom)]
    sum_of_squares = sum(term for term, _ in terms)
    below = sum(term**2 / freedom for term, freedom in terms)
    return sum_of_squares / total, (sum_of_squares**2 / below if below > 0 else rest_freedom)
