"""The bootstrap against its definition, its coverage, and its care for missing values."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from cod_lightning.evaluation.intervals import DIFFERENCE, SHARE, bootstrap, position_estimates
from tests.cases import each
from tests.speed import quickest


@pytest.mark.slow
def test_the_interval_covers_the_truth_about_95_times_in_100() -> None:
    rng = np.random.default_rng(0)
    drawn = (rng.random((200, 300)) < 0.6).astype(float)  # 200 studies of 300 packs, as columns of one bootstrap each
    covered = sum(one.low <= 0.6 <= one.high for study in drawn for one in position_estimates(study[:, None], seed=1))
    assert 180 <= covered <= 198


def test_a_position_without_any_value_is_nan_and_does_not_spoil_the_gain_between_others() -> None:
    values = np.array([[0.0, np.nan, 1.0], [0.0, np.nan, 1.0]])
    assert math.isnan(position_estimates(values)[1].mean)
    mean, gain = bootstrap(values, np.array([[1 / 3, 1 / 3, 1 / 3], [-1.0, 0.0, 1.0]]))
    assert math.isnan(mean.mean)
    assert gain.mean == 1.0


def test_the_same_seed_gives_the_same_interval_and_a_single_pack_has_none() -> None:
    values = np.random.default_rng(4).random((20, 3))
    assert position_estimates(values, seed=5) == position_estimates(values, seed=5)
    assert position_estimates(values, seed=5) != position_estimates(values, seed=6)
    (found,) = position_estimates(np.ones((1, 1)), limits=SHARE)
    assert (found.mean, found.ci95, found.num) == (1.0, None, 1)


def test_2048_packs_take_a_fraction_of_a_second() -> None:
    values = np.random.default_rng(5).random((2048, 4))
    assert quickest(lambda: position_estimates(values)) < 0.3


def every_resample(values: np.ndarray, contrast: np.ndarray) -> tuple[float, float, float]:
    """Mean and percentiles over all P^P ways to draw P packs; those in which a column has no value do not count.

    The percentiles are those at which a normal distribution has Student's quantile, wider by sqrt(P / (P - 1)).
    """
    drawn = values[np.array(list(itertools.product(range(len(values)), repeat=len(values))))]
    drawn = drawn[~np.isnan(drawn).all(axis=1).any(axis=1)]
    statistics = np.nanmean(drawn, axis=1) @ contrast
    tail = 100 * stats.norm.cdf(-stats.t.ppf(0.975, len(values) - 1) * math.sqrt(len(values) / (len(values) - 1)))
    return float(np.nanmean(values, axis=0) @ contrast), *np.percentile(statistics, (tail, 100 - tail))


@each("seed", range(2))
@each("missing", [False, True])
def test_the_bootstrap_is_that_of_all_resamples_up_to_the_noise_of_those_it_draws(missing: bool, seed: int) -> None:
    values = np.random.default_rng(seed).random((6, 2)) + np.array([0.0, 1.0])
    if missing:
        values[seed, 0] = values[(seed + 1) % 6, 1] = values[(seed + 2) % 6, 1] = np.nan
    contrast = np.array([-1.0, 2.0])
    expected = every_resample(values, contrast)
    drawn = [bootstrap(values, contrast[None], seed=s)[0] for s in range(30)]
    found = [np.mean([getattr(e, name) for e in drawn]) for name in ("mean", "low", "high")]
    width = expected[2] - expected[1]
    assert found == pytest.approx(expected, abs=0.03 * width)


def test_the_ends_of_an_interval_hardly_depend_on_which_resamples_were_drawn() -> None:
    values = np.random.default_rng(6).normal(size=(60, 1))
    drawn = [position_estimates(values, seed=s)[0] for s in range(60)]
    error = values.std() / math.sqrt(len(values))
    for end in ("low", "high"):
        assert np.std([getattr(estimate, end) for estimate in drawn]) < 0.08 * error, "2,000 resamples leave 0.06"


def test_a_value_that_is_missing_is_not_a_zero() -> None:
    values = np.full((30, 1), 0.7)
    values[::3] = np.nan
    (estimate,) = position_estimates(values)
    assert (estimate.mean, estimate.num) == (pytest.approx(0.7), 20)
    assert estimate.ci95 is None, "without limits, values that agree say nothing of how far others may be"
    values[:] = np.nan
    values[:3, 0] = 0.5, 0.6, 0.7
    (few,) = position_estimates(values)
    assert few.low < 0.5, "Student's interval of three packs, however many more have no value"


def test_a_contrast_counts_every_pack_that_has_any_of_its_values_and_only_those() -> None:
    values = np.array([[1.0, 0.5, np.nan], [np.nan, np.nan, 1.0], [0.0, np.nan, np.nan], [np.nan, 1.0, 1.0]])
    contrasts = np.array([[1.0, 0.0, 0.0], [1.0, -1.0, 0.0], [0.0, 0.0, 1.0], [0.3, 0.3, 0.4]])
    for contrast, estimate in zip(contrasts, bootstrap(values, contrasts), strict=True):
        used = [m for m in range(3) if contrast[m]]
        assert estimate.num == sum(any(not math.isnan(row[m]) for m in used) for row in values)


# ------------------------------------------------------------------ hidden rules


def studies(num_rules: int, packs: int, spread: float, number: int = 200):
    """Success of packs of few rules, whose rates are drawn around one half, and the rule of each pack."""
    rng = np.random.default_rng(7)
    rules = [str(rule) for rule in np.repeat(np.arange(num_rules), packs)]
    for _ in range(number):
        rates = np.repeat(np.clip(rng.normal(0.5, spread, num_rules), 0, 1), packs)
        yield (rng.random((len(rules), 1)) < rates[:, None]).astype(float), rules


@pytest.mark.parametrize(
    ("num_rules", "packs", "spread"),
    [
        pytest.param(*sizes, marks=pytest.mark.slow)
        for sizes in ((3, 64, 0.15), (31, 16, 0.1), (8, 64, 0.0), (200, 1, 0.0))
    ],
)
def test_the_interval_covers_the_truth_about_95_times_in_100_however_few_rules_there_are(num_rules, packs, spread):
    held = by_pack = 0
    for values, rules in studies(num_rules, packs, spread):
        (one,) = position_estimates(values, rules=rules, limits=SHARE)
        (alone,) = position_estimates(values, limits=SHARE)
        held, by_pack = held + (one.low <= 0.5 <= one.high), by_pack + (alone.low <= 0.5 <= alone.high)
        assert one.num == len(values), "packs are counted, not rules"
    assert 0.9 <= held / 200 <= 0.99
    assert by_pack / 200 > 0.9 or spread, "packs by themselves do where they are independent, and nowhere else"
    assert by_pack / 200 < 0.7 or spread < 0.15


def test_packs_of_one_rule_are_resampled_by_themselves_and_so_are_packs_whose_rules_all_differ():
    values = np.random.default_rng(8).random((20, 2))
    alone = position_estimates(values)
    assert position_estimates(values, rules=["one"] * 20) == alone
    assert position_estimates(values, rules=[f"rule {n}" for n in range(20)]) == alone
    assert position_estimates(values, rules=["a", "b"] * 10) != alone


def test_the_order_of_packs_does_not_matter_to_a_rule_and_rules_that_agree_show_no_spread():
    values = np.arange(6.0)[:, None] % 2
    for order in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4]):
        rules = [("a", "b", "c")[n // 2] for n in order]
        (found,) = position_estimates(values[order], rules=rules)
        assert (found.mean, found.num, found.ci95) == (0.5, 6, None)


# ------------------------------------------------------------------ shares


@each(("value", "num"), [(0.0, 4), (1.0, 4), (0.0, 300)])
def test_a_share_of_none_or_all_has_an_interval_of_the_width_that_clopper_and_pearson_give_it(value, num):
    (found,) = position_estimates(np.full((num, 1), value), limits=SHARE)
    missed = 1 - 0.025 ** (1 / num)
    assert found.ci95 == pytest.approx([value - value * missed, value + (1 - value) * missed])


def test_pairs_that_all_agree_have_an_interval_on_both_sides_and_few_rules_a_wider_one():
    values = np.zeros((40, 1))
    (found,) = position_estimates(values, limits=DIFFERENCE)
    assert found.low == -found.high < 0
    (few,) = position_estimates(values, rules=["a", "b", "c", "d"] * 10, limits=DIFFERENCE)
    assert few.high == pytest.approx(1 - 0.025**0.25)
    low, high = bootstrap(np.ones((9, 2)), np.array([[-1.0, 1.0]]), limits=SHARE)[0].ci95 or (0, 0)
    assert low == -high < 0


@pytest.mark.slow
@pytest.mark.parametrize(("num", "rate"), [(4, 0.1), (30, 0.1), (200, 0.01)])
def test_a_small_share_is_covered(num, rate):
    rng = np.random.default_rng(9)
    drawn = (rng.random((200, num, 1)) < rate).astype(float)
    found = [position_estimates(one, limits=SHARE)[0] for one in drawn]
    assert np.mean([one.low <= rate <= one.high for one in found]) >= 0.93
    assert all(0 <= one.low < one.high <= 1 for one in found)
