"""Checks on the final state: what was asked for, and nothing else."""

import random

import pytest

from cod_lightning.envs.apps import Apps
from cod_lightning.envs.apps.checks import checks
from cod_lightning.envs.apps.database import Database
from cod_lightning.envs.apps.facts import HiddenFacts
from cod_lightning.envs.apps.person import person_of
from cod_lightning.envs.apps.schema import Like, ShortNote
from cod_lightning.envs.apps.templates import CONFIRMED
from cod_lightning.envs.apps.templates.base import Truth
from tests.envs.apps.played import damaged, solved, specs


def written() -> tuple[Database, ShortNote, ShortNote]:
    db = Database()
    return db, db.add(ShortNote(title="a", text="1")), db.add(ShortNote(title="b", text="2"))


def wanted(before: Database) -> Truth:
    return Truth(before, HiddenFacts(), person_of(0))


def passed(expected, after, answer="", finished=True):
    return {check.about: check.passed for check in checks(expected, after, answer, finished)}


def test_a_row_that_is_changed_as_wanted_passes_one_that_should_be_gone_is_gone_and_any_other_is_named():
    before, a, b = written()
    expected = wanted(before)
    expected.edit(a, pinned=True)
    expected.edit(a, text="3")
    after = before.copy()
    after.put(ShortNote(id=a.id, title="a", text="3", pinned=True))
    assert all(passed(expected, after).values())
    after.put(ShortNote(id=b.id, title="b", text="?"))
    assert passed(expected, after)["nothing else changes: short note"] is False
    after.put(ShortNote(id=a.id, title="a", text="4", pinned=True))
    assert passed(expected, after)["a short note is changed: text"] is False
    expected = wanted(before)
    expected.remove(a)
    assert passed(expected, before.copy())["a short note is gone"] is False
    after = before.copy()
    after.put(ShortNote(id=a.id, title="", text=""))
    assert passed(expected, after)["a short note is gone"] is False
    after.remove(a)
    assert all(passed(expected, after).values())


def test_of_two_new_rows_one_that_is_exactly_right_counts_whatever_the_other_is():
    before, *_ = written()
    expected = wanted(before)
    expected.add(Like(song_id=1))
    expected.add(Like(song_id=2))
    after = before.copy()
    after.add(Like(song_id=2))
    results = checks(expected, after, "", True)
    assert [check.passed for check in results] == [False, True, True, True]
    after.add(Like(song_id=3))
    assert [check.passed for check in checks(expected, after, "", True)] == [False, True, True, True]
    after.add(Like(song_id=1))
    assert [check.passed for check in checks(expected, after, "", True)] == [True, True, False, True]


def test_an_answer_counts_without_regard_to_case_and_spaces_and_the_task_has_to_be_ended():
    before, *_ = written()
    expected = wanted(before)
    expected.answer = "New York"
    assert passed(expected, before, " new  york ")["the answer"]
    assert not passed(expected, before, "york")["the answer"]
    assert not passed(expected, before, "new york", finished=False)["the task is ended with user.done"]


@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_whatever_else_is_damaged_after_perfect_play_is_caught(count):
    rng, missed = random.Random(1), []
    asking = specs(Apps(quirks=2, patience=3, templates=list(CONFIRMED)), count // 4)
    for task in (*specs(Apps(quirks=2), count), *asking):
        server = solved(task)
        assert all(check.passed for check in task.checked(server))
        after, damage = damaged(server.db, rng)
        if all(
            check.passed for check in checks(task.expected(), after, server.answer, server.finished, server.replies)
        ):
            missed.append((task.text, damage))
    assert not missed
