"""Intervals over seeds and packs: the textbook's formula, and the coverage that they claim."""

import math

import numpy as np
import pytest
from scipy import stats

from cod_lightning.evaluation.crossed import crossed_estimate, seed_estimate


def drawn(rng, seeds, packs, of_seed, of_pack, rest):
    """A table of the two-way model with mean 0 and these standard deviations."""
    rows, columns = rng.normal(0, of_seed, (seeds, 1)), rng.normal(0, of_pack, (1, packs))
    return rows + columns + rng.normal(0, rest, (seeds, packs))


def by_definition(values):
    """Variance components by loops, and Satterthwaite's interval from them."""
    num_seeds, num_packs = len(values), len(values[0])
    mean = sum(map(sum, values)) / (num_seeds * num_packs)
    of_seed = [sum(row) / num_packs for row in values]
    of_pack = [sum(values[s][p] for s in range(num_seeds)) / num_seeds for p in range(num_packs)]
    a = num_packs * sum((x - mean) ** 2 for x in of_seed) / (num_seeds - 1)
    b = num_seeds * sum((x - mean) ** 2 for x in of_pack) / (num_packs - 1)
    e = sum(
        (values[s][p] - of_seed[s] - of_pack[p] + mean) ** 2 for s in range(num_seeds) for p in range(num_packs)
    ) / ((num_seeds - 1) * (num_packs - 1))
    var_a, var_b = max(0.0, (a - e) / num_packs), max(0.0, (b - e) / num_seeds)
    variance = var_a / num_seeds + var_b / num_packs + e / (num_seeds * num_packs)
    assert a > e, "the case in which all three count"
    assert b > e
    top = (a + b - e) ** 2
    freedom = top / (a**2 / (num_seeds - 1) + b**2 / (num_packs - 1) + e**2 / ((num_seeds - 1) * (num_packs - 1)))
    return mean, stats.t.ppf(0.975, freedom) * math.sqrt(variance)


def test_it_is_the_two_way_model_s_formula() -> None:
    values = drawn(np.random.default_rng(1), 4, 7, 1.0, 1.0, 0.3)
    mean, spread = by_definition(values.tolist())
    found = crossed_estimate(values)
    assert (found.mean, found.low, found.high) == pytest.approx((mean, mean - spread, mean + spread))
    assert found.num == 7


@pytest.mark.parametrize(
    ("of_seed", "of_pack", "rest"), [(0.1, 0.5, 1.0), (0.0, 0.0, 1.0), (0.5, 0.0, 1.0), (0.0, 1.0, 0.2)]
)
def test_95_of_100_intervals_of_five_seeds_hold_the_truth(of_seed: float, of_pack: float, rest: float) -> None:
    rng = np.random.default_rng(2)
    found = [crossed_estimate(drawn(rng, 5, 64, of_seed, of_pack, rest)) for _ in range(400)]
    held = sum(one.low <= 0 <= one.high for one in found) / 400
    assert 0.92 <= held <= 0.995


def test_one_seed_speaks_about_packs_only() -> None:
    values = np.random.default_rng(3).normal(size=(1, 50))
    found = crossed_estimate(values)
    spread = stats.t.ppf(0.975, 49) * values.std(ddof=1) / math.sqrt(50)
    assert found.high - found.mean == pytest.approx(spread)


def test_a_pack_that_misses_a_seed_is_left_out_and_nothing_is_made_up() -> None:
    values = np.array([[1.0, 0.0, np.nan], [1.0, 0.0, 1.0]])
    assert crossed_estimate(values) == crossed_estimate(values[:, :2])
    assert math.isnan(crossed_estimate(np.full((2, 3), np.nan)).mean)


def test_values_that_all_agree_have_an_interval_of_no_width() -> None:
    found = crossed_estimate(np.ones((3, 4)))
    assert (found.mean, found.low, found.high) == (1.0, 1.0, 1.0)


def test_figures_of_runs_get_students_interval() -> None:
    found = seed_estimate(np.array([1.0, 2.0, 3.0, np.nan]))
    assert (found.mean, found.num) == (2.0, 3)
    assert found.high - 2.0 == pytest.approx(stats.t.ppf(0.975, 2) / math.sqrt(3))
    assert math.isnan(seed_estimate(np.array([1.0])).low)


def test_an_effect_that_shows_less_than_the_noise_counts_as_none() -> None:
    def squares(values):
        rest = values - values.mean(1, keepdims=True) - values.mean(0) + values.mean()
        a = 6 * ((values.mean(1) - values.mean()) ** 2).sum() / 3
        b = 4 * ((values.mean(0) - values.mean()) ** 2).sum() / 5
        return a, b, (rest**2).sum() / 15

    tables = (np.random.default_rng(seed).normal(size=(4, 6)) for seed in range(200))
    noisy = [(values, squares(values)[2]) for values in tables if max(squares(values)[:2]) < squares(values)[2]]
    assert len(noisy) > 5
    for values, e in noisy:
        found = crossed_estimate(values)
        assert found.high - found.mean == pytest.approx(stats.t.ppf(0.975, 15) * math.sqrt(e / 24))
