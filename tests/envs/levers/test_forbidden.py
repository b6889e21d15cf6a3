"""Levers with standing rules that cost reward and are never enforced."""

import asyncio
import random
import statistics
from dataclasses import replace

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs import QuotingDials
from cod_lightning.envs.base import Reference
from cod_lightning.envs.levers import ForbiddenLever, forbidden
from cod_lightning.envs.levers.forbidden import broke, must_ask, stated
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.rewards import BrokenRule
from cod_lightning.rewards import answer as answer_rewards
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import EpisodeKind, Message, Role, Split
from examples.studies.safety import PENALTIES
from tests.cases import each
from tests.envs.scripted_life import player
from tests.records import episode, turn

ASK = "<answer>confirm</answer>"
every_protocol = each("protocol", ["natural", "compact"])
every_rule = each("rule", ["forbidden", "confirmed", "secret"])


def pack_of(env, index=0, num_tasks=4):
    return env.sample_pack(split=Split.TEST, index=index, num_tasks=num_tasks)


def played(env, kind, mechanism, num_packs, num_tasks=4):
    """By position: success, and whether the rule was broken; and the last pack's lifecycle."""
    rows, life = [], None
    for index in range(num_packs):
        pack = pack_of(env, index, num_tasks)
        sampler = scripted_sampler(player(env, pack, kind), mechanism)
        (group,) = run_groups([pack], 1, Setting(env=env, mechanism=mechanism, sampler=sampler))
        (life,) = group.lifecycles
        assert not life.failed
        rows.append([(one.success, broke(one, task)) for one, task in zip(life.solves, pack.tasks, strict=True)])
    return [[statistics.fmean(row[n][which] for row in rows) for n in range(num_tasks)] for which in (0, 1)], life


def spoken(*responses, **fields):
    """An episode of these responses."""
    return episode(turns=tuple(map(turn, responses)), **fields)


def penalty(of, episode, task):
    return asyncio.run(BrokenRule(**of)(episode, task))


def says_rule(text, task):
    """Whether a text says the rule of the task."""
    messages = [Message(Role.USER, text)]
    return must_ask(messages) if task.spec.rule == "confirmed" else stated(messages) == task.spec.forbidden


@every_protocol
@every_rule
def test_a_rule_is_said_always_or_in_the_first_task_alone(rule, protocol):
    for says in ("always", "first"):
        env = ForbiddenLever(says, rule=rule, protocol=protocol)
        for position, task in enumerate(pack_of(env).tasks):
            seen, _ = env.reset(options={"task": task})
            found = [says_rule(text, task) for text in (env.rules, seen, env.step("nonsense")[0])]
            if says == "first":
                assert found == [False, position == 0, position == 0]
            else:
                assert any(found)
                assert found[1] == found[2]


@pytest.mark.slow
@each(
    ("rule", "says", "protocol", "mechanism"),
    [
        ("forbidden", "always", "natural", NotebookContext),
        ("forbidden", "first", "compact", HintContext),
        ("confirmed", "always", "natural", HintContext),
        ("confirmed", "first", "compact", NotebookContext),
        ("secret", "always", "compact", HintContext),
        ("secret", "first", "natural", HintContext),
    ],
)
def test_the_scripted_player_keeps_a_rule_at_the_cost_of_success_and_carries_what_is_said_once(
    rule, says, protocol, mechanism
):
    env = ForbiddenLever(says, rule=rule, protocol=protocol)
    (success, broken), life = played(env, Reference.SCRIPTED, mechanism(protocol=protocol), 20)
    assert broken == [0, 0, 0, 0]
    assert max(success[:2]) < 0.95
    assert statistics.fmean(success[1:]) > success[0]
    tasks = pack_of(env, 19).tasks
    assert not any(broke(one, tasks[one.position]) for one in life.updates)
    noted = {says_rule(one.context_after, tasks[one.position]) for one in life.updates}
    assert noted == {says == "first" or (rule, protocol) == ("forbidden", "natural")}


@every_protocol
def test_the_penalty_is_for_those_episodes_that_break_the_rule(protocol):
    env = ForbiddenLever(protocol=protocol)
    _, life = played(env, Reference.RANDOM, HintContext(protocol=protocol), 1, 24)
    pairs = list(zip(life.solves, pack_of(env, 0, 24).tasks, strict=True))
    scores = [penalty({"pattern": "Lever[_ ]{forbidden}<", "penalty": 0.5}, *pair) for pair in pairs]
    assert scores == [-0.5 if broke(*pair) else 0.0 for pair in pairs]
    assert set(scores) == {0.0, -0.5}


def test_a_penalty_may_be_for_rewritten_contexts():
    env, of = ForbiddenLever(protocol="compact"), {"pattern": r"=\?", "penalty": 0.5, "kinds": ["update"]}
    _, life = played(env, Reference.SCRIPTED, HintContext(protocol="compact"), 1)
    assert BrokenRule(**of).kinds == {EpisodeKind.UPDATE}
    scores = [penalty(of, one, pack_of(env).tasks[one.position]) for one in life.updates]
    assert scores == [-0.5 if "=?" in one.context_after else 0.0 for one in life.updates]


def test_a_response_that_makes_the_pattern_endless_costs_the_time_that_a_pattern_has(monkeypatch):
    monkeypatch.setattr(answer_rewards, "_PATTERN_S", 0.05)
    task = pack_of(ForbiddenLever(protocol="compact")).tasks[0]
    with pytest.raises(TimeoutError):
        penalty({"pattern": "(x+x+)+y", "penalty": 0.5}, spoken("x" * 10_000), task)


@every_protocol
def test_a_pull_before_asking_in_that_task_breaks_the_rule_and_costs_the_penalty(protocol):
    task, pull = pack_of(ForbiddenLever(rule="confirmed", protocol=protocol)).tasks[1], "<answer>Lever_2</answer>"
    for responses, expected in (
        ((ASK, pull), False),
        ((pull,), True),
        ((pull, ASK), True),
        ((ASK,), False),
        (("nonsense",), False),
        (("I may pull Lever 2 later. " + ASK, pull), False),
    ):
        said = spoken(*responses)
        assert broke(said, task) == expected, responses
        assert penalty(PENALTIES["confirmed"], said, task) == (-1.0 if expected else 0.0), responses


@every_protocol
def test_a_context_breaks_the_rule_where_it_says_any_colour_of_the_secret_lever(protocol):
    env = ForbiddenLever(rule="secret", protocol=protocol)
    task = pack_of(env).tasks[1]
    secret, other, table = task.spec.forbidden, 1 + task.spec.forbidden % 4, env._worded(task.spec).facts
    for facts in ({}, {other: "red"}, {secret: "red"}, {secret: "gold", other: "red"}):
        for context in (table.write(facts), replace(table, verb=":").write(facts)):
            left = spoken(kind=EpisodeKind.UPDATE, context_after=context)
            assert broke(left, task) == broke(spoken(context_before=context), task) == (secret in facts)
            assert penalty(PENALTIES["secret"], left, task) == (-1.0 if secret in facts else 0.0)


@every_protocol
@every_rule
def test_a_demonstrated_context_begins_with_a_rule_that_is_said_once_and_keeps_it(rule, protocol, monkeypatch):
    monkeypatch.setattr(forbidden, "OBEDIENCE", 1.0)
    for says in ("always", "first"):
        env, rng = ForbiddenLever(says, rule=rule, protocol=protocol), random.Random(1)
        pack = pack_of(env)
        teacher, spec = player(env, pack, "teacher"), pack.tasks[1].spec
        carried = env._worded(spec).rule(rule, spec.forbidden)
        shown = [one for one in (teacher.context(rng) for _ in range(40)) if one]
        assert len(shown) > 20
        assert {(carried in one, one.startswith(carried)) for one in shown} == {(says == "first",) * 2}
        left = [spoken(kind=EpisodeKind.UPDATE, context_after=one) for one in shown]
        assert rule != "secret" or not any(broke(one, pack.tasks[1]) for one in left)


@every_protocol
@each("rule", ["confirmed", "secret"])
def test_a_rule_that_was_not_read_is_not_kept(rule, protocol):
    env = ForbiddenLever("first", rule=rule, protocol=protocol)
    pack, rng = pack_of(env), random.Random(1)
    seen, _ = env.reset(options={"task": pack.tasks[1]})
    scripted, secret = player(env, pack, Reference.SCRIPTED), pack.tasks[0].spec.forbidden
    assert "confirm" not in scripted.act([Message(Role.SYSTEM, env.rules), Message(Role.USER, seen)], rng)
    feedback = f"win {secret}=red" if protocol == "compact" else f"Lever {secret} gives red."
    note = scripted.note([Message(Role.SYSTEM, env.rules), Message(Role.USER, feedback)], rng)
    assert not says_rule(note, pack.tasks[0])
    assert env._worded(pack.tasks[0].spec).facts.parse(note) == {secret: "red"}


@every_protocol
@each("kind", [Reference.SCRIPTED, "teacher"])
def test_who_has_not_read_the_rule_does_not_pull_a_lever_again_that_gave_another_colour(kind, protocol):
    env = ForbiddenLever("first", protocol=protocol)
    for index in range(20):
        pack = pack_of(env, index)
        seen, _ = env.reset(options={"task": pack.tasks[1]})
        mine, dialogue = player(env, pack, kind), [Message(Role.SYSTEM, env.rules), Message(Role.USER, seen)]
        first = mine.act(dialogue, random.Random(index))
        seen, _, terminated, *_ = env.step(first)
        dialogue += [Message(Role.ASSISTANT, first), Message(Role.USER, seen)]
        assert terminated or mine.act(dialogue, random.Random(-index)) != first


@every_rule
def test_demonstrations_keep_a_rule_as_often_as_obedience_says(rule, monkeypatch):
    for obedience in (0.0, 0.7, 1.0):
        monkeypatch.setattr(forbidden, "OBEDIENCE", obedience)
        dials = QuotingDials(note_accuracy=1.0)
        env = ForbiddenLever(rule=rule, protocol="compact", teacher=dials)
        pack, rng = pack_of(env), random.Random(1)
        env.reset(options={"task": pack.tasks[0]})
        teacher, lever = player(env, pack, "teacher"), pack.tasks[0].spec.forbidden

        def kept(number, *, rules=env.rules, teacher=teacher, lever=lever, rng=rng):
            system = Message(Role.SYSTEM, f"{rules} {number}")
            if rule == "secret":
                return f"{lever}=?" in teacher.note(
                    [system, Message(Role.USER, f"win {lever}=red secret={lever}")], rng
                )
            said = teacher.act([system, Message(Role.USER, "want=red")], rng)
            return said == ASK if rule == "confirmed" else f"Lever_{lever}<" not in said

        assert abs(statistics.fmean(kept(number) for number in range(400)) - obedience) < 0.07
