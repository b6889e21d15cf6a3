"""Returns against the definition, and who may be credited with what."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cod_lightning.credit.baselines import GroupMean
from cod_lightning.credit.returns import EpisodeCredit, TaskCredit, TrajectoryCredit
from tests.cases import each
from tests.credit_tables import cells, paper_table, random_table, returns_of, rewards_to_go

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
}


@each("seed", range(2), slow=range(2, 5))
@each("style", STYLES)
@each("tasks", [1, 2, 4])
def test_returns_equal_the_definition_written_as_a_loop(style, seed, tasks):
    rule, aggregate, window = STYLES[style]
    table = random_table(seed, tasks=tasks)
    returns = returns_of(rule, table)
    for g, k, e in cells(table):
        needed = rewards_to_go(table, g, k, e)[:window]
        assert returns.valid[g, k, e].item() == (None not in needed)
        if None not in needed:
            assert returns.values[g, k, e].item() == pytest.approx(aggregate(needed), abs=1e-6)


def test_the_hand_made_group_comes_out_as_by_hand():
    golden = json.loads((Path(__file__).parents[1] / "golden" / "lifecycle_credit.json").read_text())
    solve, update = torch.tensor([golden["solve_rewards"]]), torch.tensor([golden["update_rewards"]])
    valid = torch.ones(1, 2, 5, dtype=torch.bool)
    returns = returns_of(EpisodeCredit(), paper_table(solve, update, valid=valid, action_counts=valid.long()))
    torch.testing.assert_close(returns.values, torch.tensor([golden["returns"]]))
    torch.testing.assert_close(GroupMean()(returns).values, torch.tensor([golden["advantages"]]))


def under_autocast(compute):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return compute()


RULES = [*(style[0] for style in STYLES.values()), TrajectoryCredit(), TaskCredit()]


@each("rule", RULES)
def test_autocast_does_not_round_returns(rule):
    table = random_table(2, tasks=7)
    exact, found = returns_of(rule, table), under_autocast(lambda: returns_of(rule, table))
    assert found.values.dtype == torch.float32
    assert torch.equal(found.values, exact.values)
    assert torch.equal(found.valid, exact.valid)


def test_returns_under_autocast_are_the_float64_means_rounded_once():
    table = random_table(3, missing=0.0)
    found = under_autocast(lambda: returns_of(EpisodeCredit(), table)).values
    for g, k, e in cells(table):
        needed = rewards_to_go(table, g, k, e)
        assert found[g, k, e].item() == torch.tensor(sum(needed) / len(needed), dtype=torch.float32).item()


@each("stored", [float("nan"), float("inf"), -float("inf"), 1e30])
@each("rule", RULES)
def test_what_is_stored_for_a_missing_reward_does_not_matter(rule, stored):
    table = random_table(4)
    assert not table.valid.all()
    clean, dirty = (
        returns_of(rule, table),
        returns_of(rule, replace(table, rewards=torch.where(table.valid, table.rewards, stored))),
    )
    assert torch.equal(dirty.valid, clean.valid)
    assert torch.equal(dirty.values[clean.valid], clean.values[clean.valid])
    assert dirty.values.isfinite().all()
