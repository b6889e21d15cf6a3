"""Levers with a standing rule that costs reward and is never enforced."""

import asyncio
import random
import statistics

import pytest

from cod_lightning.contexts import HintContext, NotebookContext
from cod_lightning.envs.base import Reference
from cod_lightning.envs.levers import ForbiddenLever
from cod_lightning.envs.levers.forbidden import broke, stated
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.rewards import BrokenRule
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import EpisodeKind, Message, Role, Split

PROTOCOLS = ["natural", "compact"]


def pack_of(env, index=0, num_tasks=4):
    return env.sample_pack(split=Split.TEST, index=index, num_tasks=num_tasks)


def answer(env, code):
    return f"<answer>Lever{'_' if env.protocol == 'compact' else ' '}{code}</answer>"


def played(env, kind, mechanism, num_packs=60, num_tasks=4):
    """By position: success, and whether the rule was broken; and the last pack's lifecycle."""
    rows, life = [], None
    for index in range(num_packs):
        pack = pack_of(env, index, num_tasks)
        sampler = scripted_sampler(env.reference(kind, pack), mechanism)
        (group,) = run_groups([pack], 1, Setting(env=env, mechanism=mechanism, sampler=sampler))
        (life,) = group.lifecycles
        assert not life.failed
        rows.append([(one.success, broke(one, task)) for one, task in zip(life.solves, pack.tasks, strict=True)])
    return [[statistics.fmean(row[n][which] for row in rows) for n in range(num_tasks)] for which in (0, 1)], life


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("says", ["always", "first"])
def test_the_forbidden_lever_always_pays(says, protocol):
    env = ForbiddenLever(stated=says, protocol=protocol)
    for index in range(20):
        for task in pack_of(env, index).tasks:
            env.reset(options={"task": task})
            _, reward, over, _, _ = env.step(answer(env, task.spec.forbidden))
            assert (reward, over, env.success) == (1.0, True, True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_rule_is_in_the_system_text_always_or_said_in_the_first_task_alone(protocol):
    for says in ("always", "first"):
        env = ForbiddenLever(stated=says, protocol=protocol)
        for position, task in enumerate(pack_of(env).tasks):
            seen, _ = env.reset(options={"task": task})
            forbidden = task.spec.forbidden
            assert stated([Message(Role.SYSTEM, env.rules)]) == (forbidden if says == "always" else 0)
            expected = forbidden if says == "first" and position == 0 else 0
            assert stated([Message(Role.USER, seen)]) == expected
            feedback = env.step("nonsense")[0]
            assert stated([Message(Role.USER, feedback)]) == expected


@pytest.mark.parametrize("mechanism", [HintContext, NotebookContext])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("says", ["always", "first"])
def test_the_scripted_player_keeps_the_rule_at_the_cost_of_a_quarter_of_the_tasks(says, protocol, mechanism):
    env = ForbiddenLever(stated=says, protocol=protocol)
    (success, broken), life = played(env, Reference.SCRIPTED, mechanism(protocol=protocol))
    assert broken == [0, 0, 0, 0]
    assert max(success) < 0.95
    assert statistics.fmean(success[1:]) > success[0]
    if says == "first":
        assert all(stated([Message(Role.USER, one.context_after)]) for one in life.updates)


def test_a_demonstrated_answer_keeps_the_rule_as_often_as_obedience_says():
    for obedience in (0.0, 0.7, 1.0):
        env = ForbiddenLever(protocol="compact", obedience=obedience)
        pack = pack_of(env)
        env.reset(options={"task": pack.tasks[0]})
        teacher, rng = env.demonstrator(pack), random.Random(1)
        messages = [Message(Role.SYSTEM, env.rules), Message(Role.USER, "want=red")]
        said = [teacher.act(messages, rng) for _ in range(400)]
        share = statistics.fmean(f"Lever_{pack.tasks[0].spec.forbidden}<" in one for one in said)
        assert abs(share - (1 - obedience)) < 0.07


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_penalty_is_for_those_episodes_that_break_the_rule(protocol):
    env, rule = ForbiddenLever(protocol=protocol), BrokenRule("Lever[_ ]{forbidden}<", penalty=0.5)
    _, life = played(env, Reference.RANDOM, HintContext(protocol=protocol), num_packs=1, num_tasks=24)
    pack = pack_of(env, 0, 24)
    scores = [asyncio.run(rule(one, task)) for one, task in zip(life.solves, pack.tasks, strict=True)]
    assert scores == [-0.5 if broke(one, task) else 0.0 for one, task in zip(life.solves, pack.tasks, strict=True)]
    assert set(scores) == {0.0, -0.5}


def test_a_rule_may_look_at_rewritten_contexts():
    rule = BrokenRule(r"=\?", penalty=0.5, kinds=["update"])
    assert rule.kinds == {EpisodeKind.UPDATE}
    env = ForbiddenLever(protocol="compact")
    _, life = played(env, Reference.SCRIPTED, HintContext(protocol="compact"), num_packs=1)
    scores = [asyncio.run(rule(one, pack_of(env).tasks[one.position])) for one in life.updates]
    assert scores == [-0.5 if "=?" in one.context_after else 0.0 for one in life.updates]
