"""The apps at a terminal: what is typed, what the apps hold, what came of a task."""

import pytest

from cod_lightning.envs.apps import Apps
from cod_lightning.envs.apps.actions import FORMS
from cod_lightning.envs.base import beside
from cod_lightning.envs.for_people import ForPeople
from cod_lightning.envs.mixture import Mixture
from cod_lightning.envs.ralph_loop import RalphLoop
from cod_lightning.types import Split
from tests.cases import each


def begun(env):
    env.reset(options={"task": env.sample_pack(split=Split.TEST, index=1, num_tasks=1).tasks[0]})
    return env


def typed(people, *lines):
    """Line by line; what was meant, and after how many lines."""
    for n in range(1, len(lines) + 1):
        if (meant := people.meant(lines[:n])) is not None:
            return meant, n
    return None, len(lines)


@each(
    ("lines", "read"),
    [
        (["a = 1", "b"], 1),
        (["for x in y:", "    print(x)", "    print(x)", "", "b"], 4),
        (["print(", "1)", "b"], 2),
        (["<answer>", "a = 1", "", "b = 2", "</answer>", "b"], 5),
    ],
)
def test_code_is_read_on_to_the_end_of_a_statement(lines, read):
    meant, n = typed(beside(begun(Apps()), ForPeople), *lines)
    assert n == read
    assert meant is not None
    assert meant.count("<answer>") == 1


@each("code", ["a = ]", "  a", "\x00", "a" * 9 + "(" * 500, "-" * 10**5 + "1", "a" + ".b" * 50_000])
def test_what_cannot_be_code_is_asked_for_again(code):
    with pytest.raises(ValueError, match="That is no Python"):
        typed(beside(begun(Apps()), ForPeople), code)


@each("form", [form for form in FORMS if form != "code"])
def test_calls_in_any_form_reach_the_apps_in_the_form_of_the_environment(form):
    env = begun(Apps(actions=form))
    for text in (
        'user.docs(app="mail")',
        '{"name": "user.docs", "arguments": {"app": "mail"}}',
        '{"name": "user.docs", "parameters": {"app": "mail"}}',
        '[{"name": "user.docs", "arguments": {"app": "mail"}}]',
    ):
        assert "mail.send" in env.step(beside(env, ForPeople).meant([text]) or "")[0]


@each("text", ["nonsense", "mail.send(x)", "mail.send(a={1})", "f()", '{"a": 1}', "a.b(c=d.e())", "[1]"])
def test_what_is_no_call_is_asked_for_again(text):
    with pytest.raises(ValueError, match="That is no call"):
        typed(beside(begun(Apps(actions="qwen")), ForPeople), text)


def test_the_end_of_a_task_shows_every_check_and_what_else_changed():
    env = begun(Apps(actions="json", quirks=0, spare_calls=20))
    people = beside(env, ForPeople)
    passwords = env.step(people.meant(["user.passwords()"]))[0]
    password = passwords.partition('"notes": "')[2][:8]
    env.step(people.meant([f"notes.login(password='{password}')"]))
    (note,) = [row for row in env._server.db.tables if row.__name__ == "ShortNote"]
    first = next(iter(env._server.db.tables[note]))
    token = env._server._token("notes")
    env.step(people.meant([f"notes.delete(id={first}, token='{token}'); user.done()"]))
    outcome = beside(env, ForPeople).outcome()
    assert (False, "nothing else changes: short note") in outcome
    assert (True, "the task is ended with user.done") in outcome
    assert (None, f"short note {first} is gone") in outcome


def test_a_world_around_the_apps_says_the_same_to_people():
    whole = beside(begun(Apps()), ForPeople)
    for env in (Mixture({"apps": Apps()}), RalphLoop(Apps())):
        assert beside(begun(env), ForPeople).holds() == whole.holds()
        assert beside(env, ForPeople).about == whole.about
    assert {row["app"]: row["holds"] for row in whole.holds()}["payments"] == "card 4, transfer 6, payment request 4"
