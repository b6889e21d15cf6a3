"""A plan before every task: its episode, what the task is shown of it, its credit, controls, and plans that are none."""

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import TextState
from cod_lightning.credit.baselines import GroupMean
from cod_lightning.credit.credited import Credit
from cod_lightning.credit.returns import EpisodeCredit
from cod_lightning.envs.base import Reference
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.references import play_reference
from cod_lightning.lifecycles.best_of_n import BestOfN
from cod_lightning.lifecycles.controls import Controlled
from cod_lightning.methods.attempts import Anchored, Counterfactual
from cod_lightning.methods.planner import PlanAndSolve
from cod_lightning.rollout.segments import count_drift
from cod_lightning.rollout.transcript import dump, load
from cod_lightning.types import EpisodeKind, EpisodeStatus, Split
from tests.cases import each
from tests.credit_tables import credit_table
from tests.stubs import FunctionEngine, WordWorld
from tests.word_play import CHAT, Ledger, first_packs, live, play, speak

PLAN = PlanAndSolve(request=" w5")
ORDER = [EpisodeKind.WRITE, EpisodeKind.SOLVE, EpisodeKind.UPDATE]


@pytest.fixture(autouse=True)
def heading(monkeypatch):
    monkeypatch.setattr("cod_lightning.methods.planner._HEADING", " w6 ")


def prompts(engine):
    return [CHAT.tokenizer.decode(list(ids)) for ids in engine.prompts]


def test_a_plan_comes_before_each_task_and_is_asked_for_behind_what_the_task_begins_with():
    groups = live(program=PLAN)
    for life in (life for group in groups for life in group.lifecycles):
        assert [one.kind for one in life.episodes] == (ORDER * 4)[:-1]
        for plan, solved in zip(life.episodes[::3], life.solves, strict=True):
            assert (plan.position, plan.reward, plan.success) == (solved.position, 0.0, True)
            assert plan.status is EpisodeStatus.COMPLETED
            assert plan.turns[0].observation == f"{solved.turns[0].observation} w5"
            assert plan.context_before == plan.context_after == solved.context_before
    assert count_drift(groups) == 0
    (read,) = load(dump(groups[0]))
    assert [one.kind for one in read.lifecycles[1].episodes] == (ORDER * 4)[:-1]


def test_every_turn_of_the_task_sees_the_plan_behind_the_rules_and_no_update_does():
    engine = FunctionEngine(speak)
    (life,) = live(program=PLAN, engine=engine, siblings=1)[0].lifecycles
    seen = prompts(engine)
    for plan, solved in zip(life.episodes[::3], life.solves, strict=True):
        said = " ".join(f"rules w6 {plan.turns[0].response} {solved.context_before}".split())
        assert sum(said in " ".join(prompt.split()) for prompt in seen) >= len(solved.turns)
    assert not any("w6" in turn.observation.split()[:1] for one in life.updates for turn in one.turns)


def test_attempts_at_a_planned_task_are_shown_its_plan():
    lives = [
        life for group in live(program=Anchored(program=PLAN, attempts=3, fraction=1.0)) for life in group.lifecycles
    ]
    for attempt, solved in ((one, life.solves[one.position]) for life in lives for one in life.attempts):
        assert attempt.turns[0].new_ids == solved.turns[0].new_ids
    assert sum(len(life.attempts) for life in lives) == 4 * 3 * 2


def test_attempts_without_a_context_are_without_the_plan_that_was_made_in_view_of_it():
    groups = live(program=Counterfactual(program=PLAN, attempts=1, fraction=1.0))
    attempts = [one for group in groups for life in group.lifecycles for one in life.attempts]
    assert len(attempts) == 4 * 3
    for one in attempts:
        assert "w6" not in CHAT.tokenizer.decode(list(one.turns[0].new_ids)).partition(one.turns[0].observation)[0]


def test_a_plan_is_credited_with_the_tasks_after_it_and_compared_with_the_siblings_plans():
    groups = live(program=PLAN, siblings=3)
    table = credit_table(groups)
    found = Credit(EpisodeCredit(mean=False, discount=1.0), GroupMean())(table)
    for (g, k, e), entry in table.numbers.items():
        lives = groups[g].lifecycles
        if lives[k].episodes[e].kind is not EpisodeKind.WRITE:
            continue
        to_go = [sum(one.reward for one in life.episodes[e:] if one.kind is EpisodeKind.SOLVE) for life in lives]
        assert float(found.values[entry]) == pytest.approx(to_go[k] - sum(to_go) / len(to_go), abs=1e-5)


def test_a_response_without_a_word_is_no_plan_and_the_task_is_shown_none():
    engine = FunctionEngine(lambda _: (CHAT.end_of_turn,))
    (life,) = live(program=PLAN, engine=engine, siblings=1, num_tasks=2)[0].lifecycles
    plan = life.episodes[0]
    assert (plan.status, plan.reward, plan.success) == (EpisodeStatus.MALFORMED, 0.0, False)
    assert life.solves[1].reward is not None
    assert not any("w6" in prompt for prompt in prompts(engine) if prompt.count("rules") == 1 and " w5" not in prompt)


@each("shown", [None, TextState(), TextState("w9")])
def test_a_control_shows_a_plan_as_much_of_the_context_as_its_task(shown):
    engine = FunctionEngine(speak)
    (life,) = live(program=Controlled(shown=shown, program=PLAN), engine=engine, siblings=1)[0].lifecycles
    assert all(one.context_before for one in life.solves[1:])
    for plan in (one for one in life.episodes[3:] if one.kind is EpisodeKind.WRITE):
        asked = plan.turns[0].observation
        (system,) = {prompt.partition(asked)[0] for prompt in prompts(engine) if asked in prompt}
        assert (plan.context_before in system.split()) == (shown is None)
        assert ("w9" in system.split()) == (shown == TextState("w9"))


def test_no_plan_is_asked_for_before_a_task_that_a_control_leaves_out():
    (pack,) = first_packs(WordWorld(), 1, 3)
    program = Controlled(contexts={pack.id: [TextState("w7"), None, TextState("w8")]}, program=PLAN)
    (life,) = play(setting={"program": program})[0].lifecycles
    played = [one for one in life.episodes if one.reward is not None]
    assert [(one.kind, one.position) for one in played] == [(kind, n) for n in (0, 2) for kind in ORDER[:2]]
    assert [one.context_before for one in played] == ["w7", "w7", "w8", "w8"]


def test_a_world_that_breaks_where_a_plan_is_asked_for_costs_the_lifecycle_alone():
    (group, other) = live(program=PLAN, world=Ledger(raise_in="0.2"))
    for life in group.lifecycles:
        assert [one.status.value for one in life.episodes[6:]] == ["failed"] + ["skipped"] * 4
        assert life.episodes[6].kind is EpisodeKind.WRITE
    assert not any(life.failed for life in other.lifecycles)


def test_words_that_the_policy_does_not_know_are_laid_to_the_program():
    with pytest.raises(ConfigError, match=r"data\.program is PlanAndSolve, whose words\(\) says the word"):
        live(program=PlanAndSolve(), siblings=1)
    assert {"Do", "plan"} <= set(PlanAndSolve().words())


@each("program", [PLAN, BestOfN(n=3)])
def test_a_scripted_player_plays_every_task_once_and_writes_no_plan(program):
    pack = Levers().sample_pack(split=Split.TEST, index=0, num_tasks=3)
    (life,) = play_reference(Levers(), [pack], Reference.SCRIPTED, HintContext(), program=program)
    assert [one.kind for one in life.episodes] == ([EpisodeKind.SOLVE, EpisodeKind.UPDATE] * 3)[:-1]
    assert not life.attempts
