"""Families of hidden rules: tables, tasks, and what facts imply, against a count of all tables that agree with them."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.invented.kinds import FAMILIES, POOL, draw, expand, family_of, names_of, redrawn
from cod_lightning.envs.invented.rule import Goal, consistent, way
from tests.cases import each

KINDS = expand(list(FAMILIES))
SMALL = [
    "lookup-4-4",
    "lookup-4-2",
    "offset-4",
    "locks-2-4",
    "threshold-2-5",
    "composition-4-3",
    "forbidden-4-2",
    "order-4-2",
]
"""Few enough tables to find those that agree by drawing."""


def rule_and_task(kind, seed):
    rule = draw(kind, names_of("seen"), random.Random(seed))
    return rule, family_of(rule).task(rule, random.Random(seed + 1))


@each("kind", KINDS)
def test_every_task_can_be_solved_and_names_play_the_roles_that_the_rule_states(kind):
    for seed in range(30):
        rule, goal = rule_and_task(kind, seed)
        assert way(rule.facts, rule.states, goal, goal.start, goal.turns)
        assert goal.start in rule.states
        assert goal.want in rule.results
        assert set(goal.menu) <= set(rule.actions)
        assert all((goal.start, action) in rule.effects for action in goal.menu)
        assert len({(state, action) for state, action, *_ in rule.table}) == len(rule.table)
        assert {*rule.states, *rule.actions, *rule.results} <= set(names_of("seen"))


@each("kind", KINDS)
def test_with_every_fact_known_the_odds_are_0_or_1_and_1_where_the_result_is_the_wanted_one(kind):
    for seed in range(20):
        rule, goal = rule_and_task(kind, seed)
        odds = family_of(rule).odds(rule, rule.facts, goal, goal.start, goal.turns)
        assert set(odds) == set(goal.menu)
        gives = {action: float(rule.effects[goal.start, action][0] == goal.want) for action in goal.menu}
        assert odds == gives


@pytest.mark.parametrize(
    "kind", [k if n % 4 == 0 else pytest.param(k, marks=pytest.mark.slow) for n, k in enumerate(SMALL)]
)
def test_the_odds_of_one_turn_are_the_share_of_tables_that_agree_with_what_is_known(kind):
    """Tables and tasks are drawn a few thousand times; those with the same facts and the same task are counted."""
    rule, rng = draw(kind, names_of("seen"), random.Random(5)), random.Random(6)
    family = family_of(rule)
    cases: dict[tuple, list[dict[str, bool]]] = {}
    for _ in range(4000):
        drawn = redrawn(rule, rng)
        goal = family.task(drawn, rng)
        goal = Goal(goal.start, goal.want, tuple(sorted(goal.menu)), 1)
        facts = tuple(sorted(f for f in drawn.facts if f[0] == rule.states[0] and f[2] == rule.actions[-1]))
        outcome = {action: drawn.effects[goal.start, action][0] == goal.want for action in goal.menu}
        cases.setdefault((facts, goal), []).append(outcome)
    (facts, goal), outcomes = max(cases.items(), key=lambda case: len(case[1]))
    if len(outcomes) < 100:
        pytest.fail(f"no case came up often enough: {len(outcomes)}")
    menu = rule.actions if kind.startswith(("offset", "threshold")) else goal.menu
    odds = family.odds(rule, facts, Goal(goal.start, goal.want, menu, 1), goal.start, 1)
    for action in goal.menu:
        share = sum(outcome[action] for outcome in outcomes) / len(outcomes)
        assert odds[action] == pytest.approx(share, abs=4 * 0.5 / len(outcomes) ** 0.5)


def test_an_order_is_carried_on_from_pair_to_pair():
    rule, _ = rule_and_task("order-5-2", 0)
    a, b, c, d, _ = rule.states
    above = rule.results[0]
    odds = family_of(rule).odds(rule, [(a, above, b), (b, above, c)], Goal(a, above, (c, d), 1), a, 1)
    assert odds == {c: 1.0, d: 0.0}


def test_a_way_is_the_shortest_that_the_facts_know_and_keeps_to_the_turns():
    facts = [("a", "b", "x"), ("b", "c", "x"), ("c", "d", "x"), ("a", "c", "y")]
    goal = Goal("a", "d", ("x", "y"), 3)
    assert way(facts, "abcd", goal, "a", 3) == [("a", "c", "y"), ("c", "d", "x")]
    assert way(facts, "abcd", goal, "a", 1) == []
    assert way(facts, "abcd", Goal("a", "d", ("x",), 3), "a", 3) == facts[:3]


def test_of_contradicting_facts_the_last_holds_in_the_place_of_the_first():
    said = [("a", "r", "x"), ("b", "r", "x"), ("a", "s", "x"), ("a", "b", "x")]
    assert consistent(said, "ab") == (("a", "s", "x"), ("b", "r", "x"), ("a", "b", "x"))


@given(st.integers(0, 10**6))
def test_a_redrawn_table_keeps_every_name_in_its_role(seed):
    rng = random.Random(seed)
    rule = draw(rng.choice(KINDS), names_of("all"), rng)
    other = redrawn(rule, rng)
    assert (other.states, other.actions, other.results) == (rule.states, rule.actions, rule.results)


@each("held_out", [40, 256, len(POOL) // 2])
def test_names_for_training_are_the_same_however_many_are_held_out(held_out):
    seen, unseen = names_of("seen", held_out), names_of("unseen", held_out)
    assert (seen, len(unseen)) == (POOL[: len(POOL) // 2], held_out)
    assert names_of("all", held_out) == (*seen, *unseen)
