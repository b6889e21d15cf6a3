"""A bandit over categories: its values, probabilities and draws against their definitions."""

import json
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from cod_lightning.methods.bandit import Bandit, mean_absolute
from tests.credit_tables import outcomes


def bandit(categories=("a", "b"), seed=1, **options):
    source = Bandit(**options)
    source.start(categories, seed)
    return source


def test_mean_absolute_advantages_are_those_of_the_loop_over_known_episodes():
    torch.manual_seed(0)
    values, valid = torch.randn(9, 3, 5), torch.rand(9, 3, 5) < 0.6
    category = torch.tensor([0, 2, 2, 0, 3, 3, 0, 2, 3])
    valid[category == 3] = False
    of_episode = category[:, None, None].expand_as(values).flatten()
    found = mean_absolute(values.flatten(), valid.flatten(), of_episode, 4).tolist()
    for c in range(4):
        known = [
            abs(float(values[p, k, e]))
            for p in range(9)
            for k in range(3)
            for e in range(5)
            if category[p] == c and valid[p, k, e]
        ]
        assert found[c] == pytest.approx(sum(known) / len(known)) if known else math.isnan(found[c])


def test_values_follow_the_latest_rollouts_and_a_category_of_which_nothing_is_known_keeps_its_own():
    source = bandit(("a", "b", "c"), step_size=0.25)
    source.observe(outcomes(["a", "b", "a"], [[[0.5, -0.5]], [[0.2, 0.0]], [[1.0, 0.0]]]))
    assert source.values == pytest.approx({"a": 0.25 * 0.5, "b": 0.25 * 0.1, "c": 0.0})
    source.observe(outcomes(["b", "c"], [[[0.3, -0.5]], [[9.0, 9.0]]], [[[True, True]], [[False, False]]]))
    assert source.values == pytest.approx({"a": 0.125, "b": 0.25 * 0.4 + 0.75 * 0.025, "c": 0.0})
    assert source.num_packs == {"a": 2, "b": 2, "c": 1}


def test_what_a_shifted_baseline_adds_to_all_advantages_is_nothing_to_learn():
    source, seen = bandit(), outcomes(["a", "b"], [[[0.5, 0.5]], [[1.0, 0.0]]])
    source.observe(replace(seen, credit=replace(seen.credit, of_equals=0.5)))
    assert source.values == pytest.approx({"a": 0.0, "b": 0.25})


def test_categories_are_drawn_by_the_softmax_of_their_values():
    source = bandit(("a", "b", "c"), temperature=0.5)
    source.load_state_dict({"values": {"a": 0.1, "b": 0.9, "c": 0.4}, "num_packs": {}})
    total = sum(math.exp(value / 0.5) for value in source.values.values())
    expected = {name: math.exp(value / 0.5) / total for name, value in source.values.items()}
    assert source.probabilities() == pytest.approx(expected)
    counts = Counter(choice.category for choice in source.next(0, 8_000))
    assert {name: counts[name] / 8_000 for name in "abc"} == pytest.approx(expected, abs=0.02)
    logged = {f"{key}/{name}": value for name in "abc" for key, value in (("value", source.values[name]), ("packs", 0))}
    assert source.metrics() == logged | {f"probability/{name}": p for name, p in source.probabilities().items()}


def test_a_low_temperature_draws_the_largest_value_and_does_not_overflow():
    source = bandit(temperature=1e-6)
    source.load_state_dict({"values": {"a": 3.0, "b": 2.0}, "num_packs": {}})
    assert source.probabilities() == {"a": 1.0, "b": 0.0}


def test_a_draw_depends_on_run_seed_and_number_of_the_pack_alone():
    assert [*bandit().next(0, 5), *bandit().next(5, 3)] == bandit().next(0, 8)
    assert bandit(seed=2).next(0, 64) != bandit().next(0, 64)


def test_a_bandit_that_is_restored_goes_on_as_the_other_would():
    one, other = bandit(), bandit()
    one.observe(outcomes(["a", "b"], [[[0.123456789, 0.4]], [[0.7, -0.1]]]))
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    for _ in range(3):
        assert one.next(0, 50) == other.next(0, 50)
        for source in (one, other):
            source.observe(outcomes(["a", "b", "b"], [[[0.1]], [[0.9]], [[0.3]]]))
        assert one.metrics() == other.metrics()
