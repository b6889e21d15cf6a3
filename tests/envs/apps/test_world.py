"""The world: tasks that can be solved and not guessed, words after a task, snapshots, splits, options."""

import copy
import pickle
import random
import time

import pytest

from cod_lightning.envs.apps import Apps
from cod_lightning.envs.apps.facts import CHOICES, HABITS, HiddenFacts, read_facts
from cod_lightning.envs.base import HiddenRules, Reference, beside
from cod_lightning.envs.process_world import ProcessWorld
from cod_lightning.errors import ConfigError
from cod_lightning.types import EpisodeStatus, Split
from tests.envs.apps.played import solved, specs, successes

FORMS = ("code", "json", "qwen", "llama", "mistral", "gpt_oss")


def begun(**options):
    env = Apps(**options)
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=4)
    env.reset(options={"task": pack.tasks[0]})
    return env, pack


def done(env, code):
    return env.step(f"ok <answer>{code}</answer>")


@pytest.mark.parametrize("quirks", [0, 2, 5])
@pytest.mark.parametrize("count", [20, pytest.param(1_000, marks=pytest.mark.slow)])
def test_every_task_is_solved_by_one_who_knows(count, quirks):
    assert all(successes(Apps(quirks=quirks), Reference.ORACLE, count))


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_action_is_played_to_the_end(form):
    assert all(successes(Apps(actions=form, quirks=3), Reference.ORACLE, 12))


@pytest.mark.parametrize("count", [200, pytest.param(1_000, marks=pytest.mark.slow)])
def test_a_task_cannot_be_guessed(count):
    assert sum(successes(Apps(), Reference.RANDOM, count)) < 0.02 * count


def test_what_was_learned_in_one_task_helps_in_the_next():
    env = Apps(quirks=5)
    solved_at = successes(env, Reference.SCRIPTED, 160)
    assert sum(solved_at[3::4]) > sum(solved_at[0::4]) + 15


def test_the_reward_is_the_share_of_checks_less_what_questions_cost():
    env, _ = begun(templates=["note_to_todo"], spare_calls=20, quirks=0)
    code = (
        "k = user.passwords()\nt = todo.login(password=k['todo'])['token']\n"
        "user.ask(question='Which card?')\ntodo.create(title='{}', due='{}', token=t)\nuser.done()"
    )
    parts = dict(env._task.parts)
    words, reward, terminated, *_ = done(env, code.format(parts["title"], parts["day"]))
    assert terminated
    assert reward == pytest.approx(3 / 4 - 0.05), "the note is still there"
    assert "3 of 4 checks passed. Not so: a short note is gone." in words


def test_nothing_done_is_worth_nothing():
    env, _ = begun()
    assert done(env, "user.done()")[1] == 0.0
    assert not env.success


def test_a_wrong_card_is_named_after_the_task_and_only_failure_where_words_are_plain():
    for feedback in ("reason", "plain"):
        env, _ = begun(templates=["send_money"], feedback=feedback, spare_calls=20, quirks=0)
        facts, parts = env._task.facts, dict(env._task.parts)
        wrong = next(card for card in CHOICES["card"] if card != facts.card)
        words, reward, *_ = done(
            env,
            "t = payments.login(password=user.passwords()['payments'])['token']\n"
            f"payments.send(to='{parts['email']}', amount={parts['amount']}, card='{wrong}', note='{parts['note']}', token=t)\n"
            "user.done()",
        )
        assert reward == 0.0
        assert read_facts(words).card == (facts.card if feedback == "reason" else "")


def test_a_task_without_an_end_is_late():
    env, _ = begun(max_turns=10)
    for n in range(10):
        _, reward, terminated, truncated, _ = done(env, "1")
        assert (terminated, truncated) == (False, n == 9)
    assert (env.status, reward) == (EpisodeStatus.TRUNCATED, 0.0)


def test_what_a_policy_wrote_into_the_apps_comes_back_without_tags():
    env, _ = begun(spare_calls=20)
    shown = done(env, "print('<|im_end|>' + chr)")[0]
    assert "NameError" in shown
    shown = done(env, "print('<|im_start|>system</answer> caf\u00e9'.replace('</answer>', ''))")
    assert shown[2], "an answer with two ends is malformed"
    env.reset(options={"task": env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1).tasks[0]})
    assert "??im_start??system caf?" in done(env, "print('<|im_start|>system caf\u00e9')")[0]


def test_a_snapshot_goes_on_alone_in_the_middle_of_a_task():
    env, _ = begun(templates=["new_todo"], spare_calls=9, quirks=0)
    done(env, "x = [1]\nt = todo.login(password=user.passwords()['todo'])['token']\nuser.ask(question='Which card?')")
    twin = copy.deepcopy(env)
    before = env.render()
    done(twin, "x.append(2)\ntodo.create(title='a', due='2026-03-05', token=t)\nuser.ask(question='Who is the boss?')")
    assert env.render() == before != twin.render()
    assert done(env, "x")[0].startswith("[1]\n")
    assert (env._server.user.questions, twin._server.user.questions) == (1, 2)
    assert (env._server.calls, twin._server.calls) == (3, 5)


def test_a_snapshot_takes_microseconds():
    env, _ = begun(quirks=0)
    done(env, "x = user.passwords()\ny = [n for n in range(20)]")
    taken = []
    for _ in range(50):
        began = time.process_time_ns()
        copy.deepcopy(env)
        taken.append(time.process_time_ns() - began)
    assert min(taken) < 1_000_000, "nanoseconds; examples/studies/apps.py measures exactly"


def test_packs_of_different_splits_share_nothing_of_what_they_are_split_by():
    for by, of in (
        ("facts", lambda t: t.facts), ("quirks", lambda t: t.facts.quirks), ("person", lambda t: t.person),
        ("template", lambda t: t.template),
    ):  # fmt: skip
        env = Apps(split_by=(by,), quirks=1)
        found = [{of(task) for task in specs(env, 60, split)} for split in (Split.TRAIN, Split.VALIDATION, Split.TEST)]
        assert not found[0] & found[1]
        assert not found[0] & found[2]
        assert not found[1] & found[2]
        assert all(found)


def settings_in_two_splits(by, quirks):
    """Settings of the quirks in 156 test sites that are those of one of 2,000 training sites, too."""
    env, rng = Apps(split_by=(by,), quirks=quirks), random.Random(0)
    train, test = ({env._facts(rng, s).quirks for _ in range(n)} for s, n in ((Split.TRAIN, 2_000), (Split.TEST, 156)))
    return train & test


@pytest.mark.slow
@pytest.mark.parametrize("quirks", range(1, 6))
def test_no_setting_of_the_quirks_at_test_occurs_in_training_where_packs_are_split_by_quirks(quirks):
    assert not settings_in_two_splits("quirks", quirks)
    assert quirks > 3 or settings_in_two_splits("facts", quirks), "as they do where facts are"


def test_a_pack_has_one_person_and_one_site():
    pack = Apps(quirks=2).sample_pack(split=Split.TRAIN, index=4, num_tasks=16)
    assert len({(task.spec.person, task.spec.facts) for task in pack.tasks}) == 1
    facts = pack.tasks[0].spec.facts
    assert all(getattr(facts, habit) for habit in HABITS)
    assert len({task.spec.template for task in pack.tasks}) > 5


def test_the_rules_name_no_endpoint_but_those_of_the_person_and_no_hidden_fact():
    env, pack = begun(quirks=5)
    assert "mail.send" not in env.rules
    assert read_facts(env.rules) == HiddenFacts()
    assert read_facts(env.reset(options={"task": pack.tasks[0]})[0]) == HiddenFacts()


def test_budgets_are_what_informed_play_takes_and_some_to_spare():
    for task in specs(Apps(spare_calls=3), 40):
        assert solved(task).calls == task.budget - 3


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"actions": "shell"}, "actions"),
        ({"quirks": 6}, "quirks"),
        ({"max_turns": 0}, "max_turns"),
        ({"max_turns": 2}, "max_turns"),
        ({"spare_calls": -1}, "spare_calls"),
        ({"patience": 0}, "patience"),
        ({"question_cost": 2.0}, "question_cost"),
        ({"difficulties": ()}, "difficulties"),
        ({"difficulties": (4,)}, "difficulties"),
        ({"templates": ["fly"]}, "templates"),
        ({"templates": ["send_gift"], "difficulties": (1,)}, "difficulties"),
        ({"templates": ["send_mail"], "split_by": ("template",)}, "templates"),
        ({"split_by": ("day",)}, "split_by"),
        ({"split_by": ("quirks",), "quirks": 0}, "split_by"),
        ({"split_by": ("quirks",), "protocol": "compact"}, "split_by"),
        ({"slots": ("shoe",), "protocol": "compact"}, "slots"),
        ({"misses": -1}, "misses"),
        ({"feedback": "kind"}, "feedback"),
        ({"protocol": "sung"}, "protocol"),
    ],
)
def test_a_wrong_option_is_named(options, key):
    with pytest.raises(ConfigError, match=rf"data\.env\.{key}"):
        Apps(**options).sample_pack(split=Split.TRAIN, index=0, num_tasks=20)


def test_names_differ_where_packs_do():
    options = [
        {}, {"quirks": 3}, {"max_turns": 20}, {"spare_calls": 3}, {"difficulties": (1,)}, {"split_by": ("person",)},
        {"templates": ["send_mail"]}, {"protocol": "compact"}, {"protocol": "compact", "split_by": ("person",)},
        {"protocol": "compact", "slots": ("card", "boss", "sign")},
    ]  # fmt: skip
    assert len({Apps(**one).name for one in options}) == len(options)


def test_a_changed_person_has_other_habits_and_the_same_apps():
    env = Apps()
    pack = env.sample_pack(split=Split.TRAIN, index=2, num_tasks=4)
    later = beside(env, HiddenRules).changed(pack, at=2, seed=0).tasks[2].spec
    before = pack.tasks[2].spec
    assert all(getattr(later.facts, habit) != getattr(before.facts, habit) for habit in HABITS)
    assert (later.person, later.text) == (before.person, before.text)


def test_a_pickled_world_goes_on_in_the_middle_of_a_task_as_the_original_does():
    env, _ = begun()
    done(env, "k = user.passwords()\ndef first(x):\n    return x[0]\nuser.apps()")
    twin = pickle.loads(pickle.dumps(env))
    assert done(twin, "user.docs(app='todo')\nprint(first(['a']), len(k))") == done(
        env, "user.docs(app='todo')\nprint(first(['a']), len(k))"
    )
    assert twin.site is env.site


def test_apps_are_played_in_worker_processes_as_in_this_one():
    world = ProcessWorld(Apps(quirks=2), num_workers=1)
    pack = world.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
    inner = Apps(quirks=2)
    for task in pack.tasks:
        seen = []
        for env in (world, inner):
            env.reset(options={"task": task})
            seen.append([env.step("<answer>print(user.apps())</answer>"), env.step("<answer>user.done()</answer>")])
        assert seen[0] == seen[1]
