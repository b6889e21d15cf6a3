"""Best of n: attempts that differ by noise alone, credit among them, the best one teaches; pass@k against all subsets."""

import asyncio
import io
import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from cod_lightning.contexts.base import TextState
from cod_lightning.credit.baselines import GroupMean
from cod_lightning.credit.credited import Credit
from cod_lightning.credit.returns import TaskCredit
from cod_lightning.evaluation.figures import figures
from cod_lightning.evaluation.outcomes import Outcomes, pass_at
from cod_lightning.evaluation.results import results_of
from cod_lightning.evaluation.suite import Suite
from cod_lightning.evaluation.table import print_table
from cod_lightning.lifecycles import Agent, ConnectTheDots, outline
from cod_lightning.lifecycles.best_of_n import BestOfN
from cod_lightning.lifecycles.controls import Controlled
from cod_lightning.methods.attempts import Anchored, Counterfactual
from cod_lightning.types import EpisodeKind, EpisodeStatus
from tests import records
from tests.cases import each
from tests.credit_tables import credit_table
from tests.played import play
from tests.word_play import live


def test_every_task_is_attempted_n_times_from_one_context_and_state_and_credited_by_the_other_attempts():
    (group, _) = live(program=BestOfN(n=3))
    for life in group.lifecycles:
        assert [one.kind for one in life.own] == ([EpisodeKind.SOLVE, EpisodeKind.UPDATE] * 4)[:-1]
        assert all(one.trained for one in life.attempts)
        assert [one.position for one in life.attempts] == [0, 0, 1, 1, 2, 2, 3, 3]
        for solved in life.solves:
            beside = [one for one in life.attempts if one.position == solved.position]
            assert {one.context_before for one in beside} == {solved.context_before}
            assert {one.turns[0].observation for one in beside} == {solved.turns[0].observation}
            assert {one.turns[0].response for one in (solved, *beside)} != {solved.turns[0].response} or len(beside) < 2
    groups = live(program=BestOfN(n=3))
    table = credit_table(groups)
    found = Credit(TaskCredit(), GroupMean())(table)
    for (g, k, e), entry in table.numbers.items():
        life = groups[g].lifecycles[k]
        one = life.episodes[e]
        if one.kind is EpisodeKind.SOLVE:
            every = [of for of in life.episodes if (of.kind, of.position) == (one.kind, one.position)]
            rest = [other.reward for other in every if other is not one]
            assert float(found.values[entry]) == pytest.approx(
                (one.reward - sum(rest) / len(rest)) / len(every), abs=1e-6
            )


def test_the_context_is_rewritten_in_view_of_the_best_attempt_and_of_its_own_among_equals():
    others = 0
    for group in live(program=BestOfN(n=4)):
        for life in group.lifecycles:
            for updated in life.updates:
                solved = life.solves[updated.position]
                beside = [one for one in life.attempts if one.position == solved.position]
                best = max((solved, *beside), key=lambda one: one.reward)
                others += best is not solved
                assert updated.state_before == best.state_after
                assert all(one.reward < best.reward for one in (solved,) if best is not solved)
                asked = updated.turns[0].observation
                assert asked.endswith(best.feedback)
    assert others, "in some task an attempt was better than the lifecycle's own"


def test_an_attempt_that_failed_is_not_the_best_one_where_all_rewards_are_below_0():
    solved, rewritten = records.episode(reward=-1.0), []
    lost = records.episode(status=EpisodeStatus.FAILED, reward=None)

    class Known(Agent):
        async def solve(self, task, **_):
            return solved

        async def attempts(self):
            return [lost]

        async def rewrite(self, solved, **_):
            rewritten.append(solved)

    asyncio.run(BestOfN(n=2)(Known(), records.pack("p", 2)))
    assert rewritten == [solved]


def test_an_outline_has_no_attempts_and_a_control_plays_none():
    steps = [(step.kind, step.position) for step in outline(BestOfN(n=5), 3)]
    assert steps == [(kind, n) for n in range(3) for kind in (EpisodeKind.SOLVE, EpisodeKind.UPDATE)][:-1]
    for group in live(program=Controlled(shown=TextState(), program=BestOfN(n=5))):
        assert all(not life.attempts for life in group.lifecycles)


def by_definition(attempts, k):
    """Share of the subsets of k known attempts in which one solves the task."""
    known = [one for one in attempts if not math.isnan(one)]
    subsets = list(itertools.combinations(known, k))
    return sum(any(of) for of in subsets) / len(subsets) if subsets else math.nan


@each("k", [1, 2, 3, 6])
def test_pass_at_k_is_the_share_of_subsets_that_hold_a_success(k):
    rng = np.random.default_rng(k)
    attempts = rng.choice([0.0, 1.0, math.nan], size=(20, 3, 6), p=[0.5, 0.3, 0.2])
    found = pass_at(attempts, k)
    for place in np.ndindex(20, 3):
        assert found[place] == pytest.approx(by_definition(attempts[place], k), nan_ok=True)


def test_an_evaluation_shows_pass_at_k_where_the_program_makes_several_attempts():
    lives = [group.lifecycles[0] for group in live(program=BestOfN(n=3))]
    outcomes = Outcomes.of(lives)
    assert outcomes.attempts.shape == (2, 4, 3)
    assert (outcomes.attempts[..., 0] == outcomes.success).all()
    made = figures(outcomes, {})
    assert list(made["pass_at"]) == ["1", "2", "3"]
    for k, figure in made["pass_at"].items():
        each = [by_definition(of, int(k)) for of_pack in outcomes.attempts for of in of_pack]
        assert figure["mean"] == pytest.approx(sum(each) / len(each))
    json.dumps(made)
    plain = Outcomes.of([group.lifecycles[0] for group in live()])
    assert plain.attempts is None
    assert "pass_at" not in figures(plain, {})


def test_the_table_that_a_test_ends_with_names_pass_at_k():
    played = play(Suite(name="bare", controls=(), warm_start_temperatures=()))
    rng = np.random.default_rng(0)
    with_attempts = [
        replace(
            one, outcomes=replace(one.outcomes, attempts=rng.choice([0.0, 1.0], size=(*one.outcomes.success.shape, 6)))
        )
        for one in played
    ]
    console = Console(width=200, record=True, file=io.StringIO())
    print_table(results_of(with_attempts), console)
    shown = console.export_text()
    assert "Of 6 attempts at each task, mean over positions: pass@1 0." in shown
    assert all(f"pass@{k} " in shown for k in (1, 2, 4, 6))
    print_table(results_of(played), console)
    assert "pass@" not in console.export_text()


def test_the_memory_plan_counts_the_attempts_that_there_can_be_at_a_time():
    beside = Counterfactual(attempts=2, program=Anchored(attempts=3, program=BestOfN(n=4)))
    assert (BestOfN(n=4).num_attempts, ConnectTheDots().num_attempts, beside.num_attempts) == (4, 1, 4 + 2 + 2)
