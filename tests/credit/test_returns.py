"""Returns against the definition, and baselines and scales of them; the loops of baselines are in test_credited.py."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from cod_lightning.credit.baselines import GroupMean, LeaveOneOut, deviation, divided
from cod_lightning.credit.credited import Credit
from cod_lightning.credit.returns import EpisodeCredit, TaskCredit, TrajectoryCredit
from cod_lightning.credit.table import PerEpisode
from cod_lightning.errors import ConfigError
from cod_lightning.lifecycles import ConnectTheDots
from cod_lightning.methods.asymre import AsymRE
from cod_lightning.methods.propose import ProposeAndSolve
from tests.cases import each
from tests.credit_tables import cells, random_table, returns_of, rewards_to_go

STYLES = {
    "mean": (EpisodeCredit(), lambda r: sum(r) / len(r), None),
    "window of 1": (EpisodeCredit(window=1), lambda r: sum(r) / len(r), 1),
    "window of 2": (EpisodeCredit(window=2), lambda r: sum(r) / len(r), 2),
    "window beyond the pack": (EpisodeCredit(window=9), lambda r: sum(r) / len(r), 9),
    "discounted mean": (
        EpisodeCredit(discount=0.6),
        lambda r: sum(0.6**k * x for k, x in enumerate(r)) / sum(0.6**k for k in range(len(r))),
        None,
    ),
    "discounted": (EpisodeCredit(mean=False, discount=0.6), lambda r: sum(0.6**k * x for k, x in enumerate(r)), None),
    "a task by itself": (TaskCredit(), sum, 1),
}


def paid(table):
    return replace(table, weights={e: {e: 1.0} for e, kind in enumerate(table.kinds.tolist()) if kind == 2})


TABLES = {
    **{f"the paper's {tasks}": partial(random_table, tasks=tasks) for tasks in (1, 2, 4)},
    "every second task": lambda seed: random_table(seed, tasks=6, program=ConnectTheDots(every=2)),
    "no update at all": lambda seed: random_table(seed, program=ConnectTheDots(every=9)),
    "proposals": lambda seed: paid(random_table(seed, tasks=6, program=ProposeAndSolve(solves=2))),
    "texts that nothing pays but later tasks": lambda seed: replace(
        random_table(seed), kinds=torch.tensor([2, 0, 1, 0, 0, 2, 0])
    ),
}


@each("seed", range(2), slow=range(2, 5))
@each("style", STYLES)
@each("table", TABLES.values())
def test_returns_equal_the_definition_written_as_a_loop_under_any_program(style, seed, table):
    rule, aggregate, window = STYLES[style]
    table = table(seed)
    returns = returns_of(rule, table)
    for g, k, e in cells(table):
        needed = rewards_to_go(table, g, k, e)[:window]
        assert returns.valid[g, k, e].item() == (None not in needed)
        if None not in needed:
            assert returns.values[g, k, e].item() == pytest.approx(aggregate(needed), abs=1e-6)


@each("table", TABLES.values())
def test_a_trajectory_is_the_sum_of_its_solves_whatever_else_the_plan_has(table):
    table = table(3)
    found = returns_of(TrajectoryCredit(), table)
    for g, k, e in cells(table):
        solves = [f for f in range(len(table.kinds)) if table.kinds[f] == 0]
        solves = list(table.weights.get(e, solves))
        known = all(table.valid[g, k, f] for f in solves) and bool(table.valid[g, k, e])
        assert found.valid[g, k, e].item() == known
        if known:
            assert found.values[g, k, e].item() == pytest.approx(
                sum(table.rewards[g, k, f].item() for f in solves), abs=1e-5
            )


def test_returns_under_autocast_are_the_float64_means_rounded_once():
    table = random_table(3, missing=0.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = returns_of(EpisodeCredit(), table).values
    for g, k, e in cells(table):
        needed = rewards_to_go(table, g, k, e)
        assert found[g, k, e].item() == torch.tensor(sum(needed) / len(needed), dtype=torch.float32).item()


BASELINES = [GroupMean(), LeaveOneOut(), AsymRE(shift=-0.2)]


def scale(advantages, returns, mode):
    return replace(advantages, values=divided(advantages.values, deviation(advantages, returns, mode)))


every_return = each("returns", [returns_of(EpisodeCredit(), random_table(seed, missing=0.25)) for seed in range(8)])


@every_return
def test_batch_scaling_gives_unit_deviation_over_all_that_are_valid(returns):
    advantages = GroupMean()(returns)
    deviation = scale(advantages, returns, "batch").values[advantages.valid].std(correction=0)
    assert abs(deviation.item() - 1.0) < 1e-4


@every_return
@each("mode", ["group", "batch"])
@each("baseline", BASELINES[:2])
def test_scaled_advantages_do_not_depend_on_the_unit_of_the_rewards(returns, baseline, mode):
    tiny = PerEpisode(returns.values * 1e-2, returns.valid)
    expected, found = (scale(baseline(r), r, mode) for r in (returns, tiny))
    assert expected.values.abs().max() > 0.5
    torch.testing.assert_close(found.values, expected.values, atol=1e-4, rtol=1e-3)


@each("mode", ["none", "group", "batch"])
@each("baseline", BASELINES)
@each("survivors", [0, 1])
def test_with_fewer_than_two_survivors_nothing_is_compared_and_nothing_is_nan(baseline, mode, survivors):
    valid = torch.zeros(2, 4, 5, dtype=torch.bool)
    valid[:, :survivors] = True
    alone = PerEpisode(torch.rand(2, 4, 5, generator=torch.Generator().manual_seed(1)), valid)
    found = baseline(alone)
    assert not found.valid.any()
    assert (scale(found, alone, mode).values == 0).all()


class Divides(GroupMean):
    """By a deviation, also where it is 0."""

    def __call__(self, returns):
        found = super().__call__(returns)
        return replace(found, values=found.values / found.values.std(dim=1, keepdim=True))


class Discounts(TaskCredit):
    """By a number that has none."""

    def weights(self, kinds):
        return super().weights(kinds) * math.inf


@each(
    ("credit", "key"),
    [
        (Credit(TaskCredit(), Divides()), r"model\.baseline is Divides"),
        (Credit(Discounts(), GroupMean()), r"model\.credit is Discounts"),
    ],
)
def test_a_rule_or_a_baseline_that_gives_no_numbers_is_refused_and_trains_on_no_fewer_rows_unseen(credit, key):
    table = random_table(0)
    with pytest.raises(ConfigError, match=f"{key}; expected finite numbers"):
        credit(replace(table, rewards=torch.ones_like(table.rewards)).flat())
