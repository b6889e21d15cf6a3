"""Intervals over training runs and packs at once: how far a mean would move, had other seeds and other packs been drawn."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from scipy import stats

from cod_lightning.evaluation.intervals import Estimate


def crossed_estimate(values: Float[np.ndarray, "S P"], rules: Sequence[str] = ()) -> Estimate:
    """The mean over S seeds and P packs that every seed has met, with its 95 % interval; rows and columns are random effects.

    y_sp = mu + a_s + b_p + e_sp, so Var(mean) = var_a / S + var_b / P + var_e / (S P). The three are estimated from the mean
    squares of the two-way table, var_a = (MS_a - MS_e) / P and var_b = (MS_b - MS_e) / S, a negative one counting as 0; the
    interval is mean +- t * sqrt(Var) with Satterthwaite's degrees of freedom, S - 1 at most: an effect of seeds that does not show
    among few may be there. With few seeds it is wide, as it must be (a bootstrap of five seeds is too narrow). With one seed it
    speaks about packs only, and without any spread there is no interval. Packs that miss a value for a seed are left out.

    Where `rules` [P] says that packs hide the same, a column is a rule with all its packs, each weighing as before; of one rule,
    packs are the columns.

    Source: Satterthwaite, "An Approximate Distribution of Estimates of Variance Components" (1946); Searle, Casella and McCulloch,
    "Variance Components" (1992), chapter 4.

    >>> crossed_estimate(np.array([[0.0, 1.0], [0.0, 1.0]])).mean
    0.5
    """
    complete = np.array(~np.isnan(values).any(axis=0))
    whole = values[:, complete]
    num_packs = whole.shape[1]
    if not whole.size:
        return Estimate(math.nan, math.nan, math.nan, num_packs)
    mean = float(whole.mean())
    if num_packs < 2:
        return Estimate(mean, math.nan, math.nan, num_packs)
    kept = [rule for rule, has in zip(rules, complete.tolist(), strict=False) if has]
    variance, freedom = _variance(_by_rule(whole, kept))
    if variance < 1e-18:  # all agree
        return Estimate(mean, math.nan, math.nan, num_packs)
    return _students(mean, math.sqrt(variance), min(freedom, len(whole) - 1) if len(whole) > 1 else freedom, num_packs)


def seed_estimate(values: Float[np.ndarray, " S"]) -> Estimate:
    """The mean over seeds with Student's 95 % interval, for figures that a run has one of; without it for a single seed, and where
    all agree, which says nothing of how far others may be."""
    known = values[~np.isnan(values)]
    if len(known) < 2 or np.ptp(known) < 1e-9:
        return Estimate(float(known.mean()) if len(known) else math.nan, math.nan, math.nan, len(known))
    return _students(float(known.mean()), float(known.std(ddof=1) / math.sqrt(len(known))), len(known) - 1, len(known))


def holm(p_values: Mapping[str, float], level: float = 0.05) -> list[str]:
    """Those of several comparisons, by name, that differ from 0 when all are asked for at once; NaN is no comparison.

    The smallest p-value has to be at most level / n, the next one level / (n - 1), and so on, until one is not: the odds of calling
    any difference that is none are then at most `level`.

    Source: Holm, "A Simple Sequentially Rejective Multiple Test Procedure" (1979).

    >>> holm({"a": 0.02, "b": 0.001, "c": 0.2})
    ['b', 'a']
    """
    ranked = sorted((p, name) for name, p in p_values.items() if not math.isnan(p))
    found: list[str] = []
    for rank, (p, name) in enumerate(ranked):
        if p > level / (len(ranked) - rank):
            break
        found.append(name)
    return found


def _students(mean: float, error: float, freedom: float, num: int) -> Estimate:
    """Student's interval and p-value of a mean with this standard error, above 0."""
    spread = float(stats.t.ppf(0.975, freedom)) * error
    return Estimate(mean, mean - spread, mean + spread, num, float(2 * stats.t.sf(abs(mean) / error, freedom)))


def _by_rule(values: Float[np.ndarray, "S P"], rules: Sequence[str]) -> Float[np.ndarray, "S C"]:
    """A column for each rule, whose mean over columns is that over packs: the mean plus C / P times the rule's summed distances."""
    numbers = {rule: n for n, rule in enumerate(dict.fromkeys(rules))}
    if len(numbers) in (0, 1, len(rules)):
        return values
    sums = np.zeros((len(values), len(numbers)))
    np.add.at(sums.T, [numbers[rule] for rule in rules], (values - values.mean()).T)
    return values.mean() + sums * len(numbers) / len(rules)


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
