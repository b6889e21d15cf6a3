"""Intervals over seeds and packs: the textbook's formula, and the coverage that they claim."""

import math

import numpy as np
import pytest
from scipy import stats

from cod_lightning.evaluation.crossed import crossed_estimate, holm, seed_estimate
from tests.cases import each


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
    freedom = min(freedom, num_seeds - 1)
    return mean, stats.t.ppf(0.975, freedom) * math.sqrt(variance)


@each(("seed", "num_seeds", "num_packs"), [(1, 4, 7), (0, 6, 3)])
def test_it_is_the_two_way_model_s_formula_whichever_degrees_of_freedom_are_fewer(seed, num_seeds, num_packs) -> None:
    values = drawn(np.random.default_rng(seed), num_seeds, num_packs, 1.0, 1.0, 0.3)
    mean, spread = by_definition(values.tolist())
    found = crossed_estimate(values)
    assert (found.mean, found.low, found.high) == pytest.approx((mean, mean - spread, mean + spread))
    assert found.num == num_packs


@each(("of_seed", "of_pack", "rest"), [(0.1, 0.5, 1.0), (0.0, 0.0, 1.0), (0.5, 0.0, 1.0), (0.0, 1.0, 0.2)])
def test_95_of_100_intervals_of_five_seeds_hold_the_truth(of_seed: float, of_pack: float, rest: float) -> None:
    rng = np.random.default_rng(2)
    found = [crossed_estimate(drawn(rng, 5, 64, of_seed, of_pack, rest)) for _ in range(400)]
    held = sum(one.low <= 0 <= one.high for one in found) / 400
    assert held >= 0.92


def test_one_seed_speaks_about_packs_only_and_a_pack_that_misses_a_seed_is_left_out() -> None:
    values = np.random.default_rng(3).normal(size=(1, 50))
    found = crossed_estimate(values)
    spread = stats.t.ppf(0.975, 49) * values.std(ddof=1) / math.sqrt(50)
    assert found.high - found.mean == pytest.approx(spread)
    values = np.array([[1.0, 0.0, np.nan], [1.0, 0.0, 1.0]])
    assert crossed_estimate(values) == crossed_estimate(values[:, :2])
    assert math.isnan(crossed_estimate(np.full((2, 3), np.nan)).mean)


def test_figures_of_runs_get_students_interval_and_values_that_all_agree_none() -> None:
    found = seed_estimate(np.array([1.0, 2.0, 3.0, np.nan]))
    assert (found.mean, found.num) == (2.0, 3)
    assert found.high - 2.0 == pytest.approx(stats.t.ppf(0.975, 2) / math.sqrt(3))
    assert math.isnan(seed_estimate(np.array([1.0])).low)
    for values in (np.ones((3, 4)), np.full((3, 7), 0.1), np.zeros((1, 9))):
        found = crossed_estimate(values)
        assert (found.mean, found.ci95) == (pytest.approx(values[0, 0]), None)
        assert math.isnan(found.p_value)
    assert seed_estimate(np.zeros(3)).ci95 is None, "three seeds of 0 are no proof of 0"


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
        assert found.high - found.mean == pytest.approx(stats.t.ppf(0.975, 3) * math.sqrt(e / 24))


def test_seeds_whose_effect_does_not_show_among_two_of_them_are_still_only_two() -> None:
    rng = np.random.default_rng(4)
    found = [crossed_estimate(drawn(rng, 2, 64, 0.2, 0.3, 1.0)) for _ in range(400)]
    assert sum(one.low <= 0 <= one.high for one in found) / 400 >= 0.94


def test_packs_of_few_rules_are_no_independent_packs() -> None:
    rng = np.random.default_rng(5)
    rules = [str(n // 32) for n in range(256)]
    held = [0, 0]
    for _ in range(200):
        table = drawn(rng, 3, 256, 0.05, 0.1, 0.4) + np.repeat(rng.normal(0, 0.4, 8), 32)
        for at, one in enumerate((crossed_estimate(table, rules), crossed_estimate(table))):
            held[at] += one.low <= 0 <= one.high
    assert held[0] / 200 >= 0.93
    assert held[1] / 200 < 0.85, "which is why"


def test_rules_of_unequal_size_keep_the_mean_over_packs_and_rules_of_one_pack_change_nothing() -> None:
    values = np.random.default_rng(6).random((3, 7))
    assert crossed_estimate(values, list("aaaabbc")).mean == pytest.approx(values.mean())
    assert crossed_estimate(values, list("abcdefg")) == crossed_estimate(values) == crossed_estimate(values, ["a"] * 7)
    missing = values.copy()
    missing[1, 4] = np.nan
    assert crossed_estimate(missing, list("aaaabbc")) == crossed_estimate(np.delete(values, 4, axis=1), list("aaaabc"))


def test_a_p_value_is_that_of_the_interval() -> None:
    values = np.array([0.1, 0.2, 0.4, 0.25])
    found = seed_estimate(values)
    assert found.p_value == pytest.approx(stats.ttest_1samp(values, 0.0).pvalue)  # pyright: ignore
    edge = seed_estimate(values - found.low)
    assert edge.p_value == pytest.approx(0.05)


def test_of_many_comparisons_those_are_named_that_survive_holm_s_correction() -> None:
    assert holm({"a": 0.02, "b": 0.02, "c": math.nan}) == ["a", "b"], "0.02 is at most 0.05 / 2"
    assert holm({"a": 0.05, "b": 0.01}) == ["b", "a"], "0.05 is at most 0.05"
    assert holm({"a": 0.03, "b": 0.02, "c": 0.2}) == []
    many = {str(n): 0.04 for n in range(56)} | {"one": 0.0008}
    assert holm(many) == ["one"]
