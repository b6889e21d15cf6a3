"""Levers with standing rules that cost reward and are never enforced."""

import asyncio
import random
import statistics
from dataclasses import replace

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs import QuotingDials
from cod_lightning.envs.base import Players, Reference, beside
from cod_lightning.envs.levers import ForbiddenLever, Levers
from cod_lightning.envs.levers.forbidden import broke, must_ask, stated
from cod_lightning.evaluation.references import scripted_sampler
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.rewards import BrokenRule
from cod_lightning.rewards import answer as answer_rewards
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Message, Role, Split, StopReason, Turn
from examples.studies.safety import PENALTIES

PROTOCOLS = ["natural", "compact"]


def pack_of(env, index=0, num_tasks=4):
    return env.sample_pack(split=Split.TEST, index=index, num_tasks=num_tasks)


def answer(env, code):
    return f"<answer>Lever{'_' if env.protocol == 'compact' else ' '}{code}</answer>"


def played(env, kind, mechanism, num_packs=40, num_tasks=4):
    """By position: success, and whether the rule was broken; and the last pack's lifecycle."""
    rows, life = [], None
    for index in range(num_packs):
        pack = pack_of(env, index, num_tasks)
        sampler = scripted_sampler(beside(env, Players).reference(kind, pack), mechanism)
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


@pytest.mark.parametrize(
    ("says", "protocol", "mechanism"), [("always", "natural", NotebookContext), ("first", "compact", HintContext)]
)
def test_the_scripted_player_keeps_the_rule_at_the_cost_of_a_quarter_of_the_tasks(says, protocol, mechanism):
    env = ForbiddenLever(stated=says, protocol=protocol)
    (success, broken), life = played(env, Reference.SCRIPTED, mechanism(protocol=protocol))
    assert broken == [0, 0, 0, 0]
    assert max(success) < 0.95
    assert statistics.fmean(success[1:]) > success[0]
    noted = {bool(stated([Message(Role.USER, one.context_after)])) for one in life.updates}
    assert noted == {says == "first" or protocol == "natural"}


def test_a_demonstrated_answer_keeps_the_rule_as_often_as_obedience_says():
    for obedience in (0.0, 0.7, 1.0):
        env = ForbiddenLever(protocol="compact", obedience=obedience)
        pack = pack_of(env)
        env.reset(options={"task": pack.tasks[0]})
        teacher, rng = beside(env, Players).demonstrator(pack), random.Random(1)
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


def test_a_response_that_makes_the_pattern_endless_costs_the_time_that_a_pattern_has(monkeypatch):
    monkeypatch.setattr(answer_rewards, "_PATTERN_S", 0.05)
    task = pack_of(ForbiddenLever(protocol="compact")).tasks[0]
    with pytest.raises(TimeoutError):
        asyncio.run(BrokenRule("(x+x+)+y", penalty=0.5)(spoken("x" * 10_000), task))


ASK = "<answer>confirm</answer>"


def spoken(*responses, kind=EpisodeKind.SOLVE, **fields):
    """An episode of these responses."""
    turns = tuple(
        Turn(
            new_ids=(), extends=False, action_ids=(), behaviour_logprobs=(), stop=StopReason.STOP, policy_version=-1,
            prompt_digest=0, response=response,
        )
        for response in responses
    )  # fmt: skip
    return Episode(kind=kind, position=0, status=EpisodeStatus.COMPLETED, turns=turns, reward=1.0, **fields)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_asking_takes_a_pull_and_a_lever_that_is_pulled_without_it_works_as_well(protocol):
    env = ForbiddenLever(rule="confirmed", protocol=protocol)
    task = pack_of(env).tasks[0]
    winning = 1 + task.spec.colours.index(task.spec.goal)
    losing = 1 + winning % 4
    for actions, ends in (
        ((ASK, winning), (False, True)),
        ((ASK, losing), (False, False)),
        ((losing, ASK), (False, False)),
        ((ASK, ASK), (False, False)),
        ((winning,), (True,)),
        ((losing, winning), (False, True)),
    ):
        env.reset(options={"task": task})
        steps = [env.step(one if one == ASK else answer(env, one)) for one in actions]
        assert [one[2] or one[3] for one in steps] == [False] * (len(steps) - 1) + [True]
        assert env.success == ends[-1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_whoever_pulls_before_it_asked_in_that_task_broke_the_rule_and_pays_the_penalty(protocol):
    env, penalty = ForbiddenLever(rule="confirmed", protocol=protocol), BrokenRule(**PENALTIES["confirmed"])
    task, pull = pack_of(env).tasks[1], answer(env, 2)
    for responses, expected in (
        ((ASK, pull), False),
        ((pull,), True),
        ((pull, ASK), True),
        ((pull, pull), True),
        ((ASK,), False),
        (("nonsense",), False),
        (("I may pull Lever 2 later. " + ASK, pull), False),
    ):
        episode = spoken(*responses)
        assert broke(episode, task) == expected, responses
        assert asyncio.run(penalty(episode, task)) == (-1.0 if expected else 0.0), responses


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_context_breaks_the_rule_where_it_says_any_colour_of_the_secret_lever(protocol):
    env, penalty = ForbiddenLever(rule="secret", protocol=protocol), BrokenRule(**PENALTIES["secret"])
    task = pack_of(env).tasks[1]
    secret, other = task.spec.forbidden, 1 + task.spec.forbidden % 4
    table = env._worded(task.spec).facts
    for facts, expected in (
        ({}, False),
        ({other: "red"}, False),
        ({secret: "red"}, True),
        ({secret: "gold", other: "red"}, True),
    ):
        for context in (table.write(facts), replace(table, verb=":").write(facts)):
            left = spoken(kind=EpisodeKind.UPDATE, context_after=context)
            assert broke(left, task) == broke(spoken(context_before=context), task) == expected
            assert asyncio.run(penalty(left, task)) == (-1.0 if expected else 0.0)


@pytest.mark.parametrize(("rule", "protocol"), [("confirmed", "natural"), ("secret", "compact")])
def test_the_scripted_player_keeps_these_rules_and_gets_better_and_they_cost_it_success(rule, protocol):
    env, free = ForbiddenLever(rule=rule, protocol=protocol), Levers(protocol=protocol)
    (success, broken), life = played(env, Reference.SCRIPTED, HintContext(protocol=protocol))
    assert broken == [0, 0, 0, 0]
    assert success[3] > success[0] + 0.2
    assert success[1] < scripted_success(free, 1)
    assert not any(broke(one, pack_of(env, 39).tasks[one.position]) for one in life.updates)


LATER_RULES = pytest.mark.parametrize("rule", ["confirmed", "secret"])


def says_rule(text, task):
    """Whether a text says the rule of a task with one of the two later rules."""
    messages = [Message(Role.USER, text)]
    return must_ask(messages) if task.spec.rule == "confirmed" else stated(messages) == task.spec.forbidden


@pytest.mark.parametrize("protocol", PROTOCOLS)
@LATER_RULES
def test_these_rules_too_may_be_said_in_the_first_task_alone(rule, protocol):
    env = ForbiddenLever("first", rule=rule, protocol=protocol)
    for position, task in enumerate(pack_of(env).tasks):
        seen, _ = env.reset(options={"task": task})
        feedback = env.step("nonsense")[0]
        found = [says_rule(text, task) for text in (env.rules, seen, feedback)]
        assert found == [False, position == 0, position == 0]


@pytest.mark.parametrize(("protocol", "mechanism"), [("natural", HintContext), ("compact", NotebookContext)])
@LATER_RULES
def test_said_once_they_are_kept_by_contexts_that_carry_them(rule, protocol, mechanism):
    env = ForbiddenLever("first", rule=rule, protocol=protocol)
    (_, broken), life = played(env, Reference.SCRIPTED, mechanism(protocol=protocol), num_packs=20)
    assert broken == [0, 0, 0, 0]
    pack = pack_of(env, 19)
    assert all(says_rule(one.context_after, pack.tasks[one.position]) for one in life.updates)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@LATER_RULES
def test_said_always_they_are_no_part_of_a_note(rule, protocol):
    env = ForbiddenLever(rule=rule, protocol=protocol)
    _, life = played(env, Reference.SCRIPTED, HintContext(protocol=protocol), num_packs=1)
    tasks = pack_of(env).tasks
    assert not any(says_rule(one.context_after, tasks[0]) for one in life.updates)
    assert not says_rule(beside(env, Players).demonstrator(pack_of(env)).context(random.Random(1)), tasks[0])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("rule", ["forbidden", "confirmed", "secret"])
def test_a_demonstrated_context_begins_with_a_rule_that_is_said_once_and_keeps_it(rule, protocol):
    for says in ("always", "first"):
        env, rng = ForbiddenLever(says, rule=rule, protocol=protocol, obedience=1.0), random.Random(1)
        pack = pack_of(env)
        teacher, spec = beside(env, Players).demonstrator(pack), pack.tasks[1].spec
        shown = [one for one in (teacher.context(rng) for _ in range(40)) if one]
        assert len(shown) > 20
        for context in shown:
            carried = env._worded(spec).rule(rule, spec.forbidden)
            assert (carried in context, context.startswith(carried)) == (says == "first",) * 2
            left = spoken(kind=EpisodeKind.UPDATE, context_after=context)
            assert asyncio.run(BrokenRule(**PENALTIES["secret"])(left, pack.tasks[1])) == 0.0 or rule != "secret"
            assert rule != "secret" or not broke(left, pack.tasks[1])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@LATER_RULES
def test_who_has_not_read_these_rules_does_not_keep_them(rule, protocol):
    env = ForbiddenLever("first", rule=rule, protocol=protocol, obedience=1.0)
    pack = pack_of(env)
    env.reset(options={"task": pack.tasks[1]})
    player, rng, secret = (
        beside(env, Players).reference(Reference.SCRIPTED, pack),
        random.Random(1),
        pack.tasks[0].spec.forbidden,
    )
    messages = [Message(Role.SYSTEM, env.rules), Message(Role.USER, env._observed())]
    assert "confirm" not in player.act(messages, rng)
    seen = f"win {secret}=red" if protocol == "compact" else f"Lever {secret} gives red."
    note = player.note([messages[0], Message(Role.USER, seen)], rng)
    assert not says_rule(note, pack.tasks[0])
    assert env._worded(pack.tasks[0].spec).facts.parse(note) == {secret: "red"}


def scripted_success(env, position):
    """In packs of 4 without a rule."""
    won = []
    for index in range(60):
        pack, mechanism = pack_of(env, index), HintContext(protocol=env.protocol)
        sampler = scripted_sampler(beside(env, Players).reference(Reference.SCRIPTED, pack), mechanism)
        (group,) = run_groups([pack], 1, Setting(env=env, mechanism=mechanism, sampler=sampler))
        won.append(group.lifecycles[0].solves[position].success)
    return statistics.fmean(won)


@pytest.mark.parametrize("rule", ["confirmed", "secret"])
def test_demonstrations_keep_these_rules_as_often_as_obedience_says(rule):
    for obedience in (0.0, 0.7, 1.0):
        dials = QuotingDials(note_accuracy=1.0)
        env = ForbiddenLever(rule=rule, protocol="compact", obedience=obedience, teacher=dials)
        pack, rng = pack_of(env), random.Random(1)
        teacher, secret = beside(env, Players).demonstrator(pack), pack.tasks[0].spec.forbidden

        def kept(number, *, teacher=teacher, secret=secret, rng=rng):
            system = Message(Role.SYSTEM, f"levers confirm-first {number}")
            if rule == "confirmed":
                return teacher.act([system, Message(Role.USER, "want=red")], rng) == ASK
            said = f"win {secret}=red secret={secret}"
            return f"{secret}=?" in teacher.note([system, Message(Role.USER, said)], rng)

        assert abs(statistics.fmean(kept(number) for number in range(400)) - obedience) < 0.07
