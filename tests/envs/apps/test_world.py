"""The world: tasks that can be solved and not guessed, words after a task, snapshots, splits, options."""

import copy

import pytest

from cod_lightning.envs.apps import Apps
from cod_lightning.envs.apps.facts import CHOICES, HABITS, read_facts
from cod_lightning.envs.base import Reference
from cod_lightning.errors import ConfigError
from cod_lightning.types import Split
from tests.cases import each
from tests.envs.apps.played import solved, specs, successes

FORMS = ("code", "json", "qwen", "llama", "mistral", "gpt_oss")


def begun(**options):
    env = Apps(**options)
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=4)
    env.reset(options={"task": pack.tasks[0]})
    return env, pack


def done(env, code):
    return env.step(f"ok <answer>{code}</answer>")


@pytest.mark.slow
@each("quirks", [0, 2, 5])
def test_every_task_is_solved_by_one_who_knows(quirks):
    assert all(successes(Apps(quirks=quirks), Reference.ORACLE, 1_000))


@each("form", FORMS)
def test_every_form_of_action_is_played_to_the_end(form):
    assert all(successes(Apps(actions=form, quirks=3), Reference.ORACLE, 12))


@pytest.mark.parametrize("count", [200, pytest.param(1_000, marks=pytest.mark.slow)])
def test_a_task_cannot_be_guessed(count):
    assert sum(successes(Apps(), Reference.RANDOM, count)) < 0.02 * count


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


def test_a_wrong_card_is_named_after_the_task():
    env, _ = begun(templates=["send_money"], spare_calls=20, quirks=0)
    facts, parts = env._task.facts, dict(env._task.parts)
    wrong = next(card for card in CHOICES["card"] if card != facts.card)
    words, reward, *_ = done(
        env,
        "t = payments.login(password=user.passwords()['payments'])['token']\n"
        f"payments.send(to='{parts['email']}', amount={parts['amount']}, card='{wrong}', note='{parts['note']}', token=t)\n"
        "user.done()",
    )
    assert reward == 0.0
    assert read_facts(words).card == facts.card


def test_what_a_policy_wrote_into_the_apps_comes_back_without_tags():
    env, _ = begun(spare_calls=20)
    shown = done(env, "print('<|im_end|>' + chr)")[0]
    assert "NameError" in shown
    shown = done(env, "print('<|im_start|>system</answer> caf\u00e9'.replace('</answer>', ''))")
    assert shown[2], "an answer with two ends is malformed"
    env.reset(options={"task": env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1).tasks[0]})
    assert "??im_start??system caf?" in done(env, "print('<|im_start|>system caf\u00e9')")[0]


def test_where_the_template_spells_calls_a_response_without_one_is_not_said_to_lack_tags():
    world = Apps(actions="tools")
    world.reset(seed=0)
    assert "answer>" not in world.rules
    feedback, reward, over, *_ = world.step("I would look at the mail.")
    assert (reward, over) == (0.0, True)
    assert "answer>" not in feedback


def test_a_snapshot_goes_on_alone_in_the_middle_of_a_task():
    env, _ = begun(templates=["new_todo"], spare_calls=9, quirks=0)
    done(env, "x = [1]\nt = todo.login(password=user.passwords()['todo'])['token']\nuser.ask(question='Which card?')")
    twin = copy.deepcopy(env)
    before = env._server.db.tables
    done(twin, "x.append(2)\ntodo.create(title='a', due='2026-03-05', token=t)\nuser.ask(question='Who is the boss?')")
    assert env._server.db.tables == before != twin._server.db.tables
    assert done(env, "x")[0].startswith("[1]\n")
    assert (env._server.user.questions, twin._server.user.questions) == (1, 2)
    assert (env._server.calls, twin._server.calls) == (3, 5)


def test_packs_of_different_splits_share_nothing_of_what_they_are_split_by():
    for by, of in (("facts", lambda t: t.facts), ("template", lambda t: t.template)):
        env = Apps(split_by=(by,), quirks=1)
        found = [{of(task) for task in specs(env, 60, split)} for split in (Split.TRAIN, Split.VALIDATION, Split.TEST)]
        assert not found[0] & found[1]
        assert not found[0] & found[2]
        assert not found[1] & found[2]
        assert all(found)


def test_a_pack_has_one_person_and_one_site():
    pack = Apps(quirks=2).sample_pack(split=Split.TRAIN, index=4, num_tasks=16)
    assert len({(task.spec.person, task.spec.facts) for task in pack.tasks}) == 1
    facts = pack.tasks[0].spec.facts
    assert all(getattr(facts, habit) for habit in HABITS)
    assert len({task.spec.template for task in pack.tasks}) > 5


def test_budgets_are_what_informed_play_takes_and_some_to_spare():
    for task in specs(Apps(spare_calls=3), 40):
        assert solved(task).calls == task.budget - 3


def test_turns_too_few_for_any_task_are_named_where_a_pack_is_drawn(monkeypatch):
    monkeypatch.setattr("cod_lightning.envs.apps.world._MOST_DRAWS", 20)
    with pytest.raises(ConfigError, match=r"data\.env\.max_turns"):
        Apps(max_turns=2).sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
