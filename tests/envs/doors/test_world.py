"""Doors: rewards, endings, words, packs, references."""

import random

import pytest

from cod_lightning.envs import TeacherDials
from cod_lightning.envs.base import HiddenRules, Players, Reference, beside
from cod_lightning.envs.doors import Doors
from cod_lightning.envs.doors.wording import KEYS, CompactDoors, NaturalDoors
from cod_lightning.envs.doors.world import DoorTask
from cod_lightning.types import EpisodeStatus, Message, Role, Split, Task
from tests.envs.scripted_life import success_by_position


def _started(**parameters) -> tuple[Doors, str]:
    env = Doors(**{"protocol": "compact", "num_doors": 4, **parameters})
    spec = DoorTask(door=3, keys=KEYS, glimpsed=(1, 4))
    return env, env.reset(options={"task": Task(id="0", seed=0, spec=spec)})[0]


def _try(env: Doors, key: str):
    return env.step(f"<answer>Key {key}</answer>")


def test_the_key_of_the_door_wins_and_other_doors_are_seen():
    env, first = _started()
    assert (env.rules, first) == ("doors", "open=3")
    assert _try(env, "red") == ("open=3 not=red", 0.0, False, False, {})
    assert _try(env, "blue") == ("win 3=blue 1=red 4=gold", 1.0, True, False, {})
    assert (env.success, env.status) == (True, EpisodeStatus.COMPLETED)


def test_without_tries_left_the_task_is_missed_and_the_door_s_own_key_stays_hidden():
    env, _ = _started()
    _try(env, "red")
    assert _try(env, "gold") == ("miss 1=red 4=gold", 0.0, False, True, {})
    assert (env.success, env.status) == (False, EpisodeStatus.TRUNCATED)


@pytest.mark.parametrize("action", ["", "blue", "<answer>Key pink</answer>", "<answer>Lever 1</answer>"])
def test_a_format_error_ends_the_task_at_once_and_shows_no_door(action):
    env, _ = _started()
    assert env.step(action) == ("malformed", 0.0, True, False, {})
    assert env.status is EpisodeStatus.MALFORMED


def test_sentences_say_the_same():
    env, first = _started(protocol="natural")
    assert "door to open is number 3" in first
    assert "The red key does not open it." in _try(env, "red")[0]
    feedback = _try(env, "blue")[0]
    assert env.wording.parse(feedback) == {3: "blue", 1: "red", 4: "gold"}
    env, _ = _started(protocol="natural")
    assert "<answer> occurs 0 times" in env.step("no")[0]


@pytest.mark.parametrize("wording", [CompactDoors(12), NaturalDoors(12)])
def test_what_is_written_is_read_back_and_the_later_of_two_statements_counts(wording):
    facts = {1: "red", 7: "gold", 11: "blue"}
    assert wording.parse(wording.write(facts)) == facts
    assert wording.parse(wording.write({})) == {}
    both = f"{wording.write({7: 'red'})}\n{wording.write({7: 'gold', 1: 'blue'})}"
    assert wording.parse(both) == {7: "gold", 1: "blue"}
    assert wording.parse(wording.write({1: "red"}).replace("1", "99")) == {}


def test_glimpses_are_of_other_doors_and_longer_packs_begin_as_shorter_ones():
    env = Doors(num_doors=6, glimpses=3)
    short, long = (env.sample_pack(split=Split.TEST, index=2, num_tasks=n) for n in (3, 40))
    assert long.tasks[:3] == short.tasks
    for task in long.tasks:
        assert len(set(task.spec.glimpsed)) == 3
        assert task.spec.door not in task.spec.glimpsed
    assert [task.repeat for task in long.tasks] == [
        task.spec.door in {one.spec.door for one in long.tasks[:n]} for n, task in enumerate(long.tasks)
    ]


def test_a_change_gives_every_door_another_key_and_keeps_what_is_asked():
    env = Doors(num_doors=5)
    pack = env.sample_pack(split=Split.TEST, index=0, num_tasks=6)
    after = beside(env, HiddenRules).changed(pack, 3, seed=1)
    assert after.tasks[:3] == pack.tasks[:3]
    for old, new in zip(pack.tasks[3:], after.tasks[3:], strict=True):
        assert all(was != now for was, now in zip(old.spec.keys, new.spec.keys, strict=True))
        assert (old.spec.door, old.spec.glimpsed) == (new.spec.door, new.spec.glimpsed)


@pytest.mark.slow
def test_more_doors_are_known_more_slowly():
    gains = []
    for number in (4, 32):
        curve = success_by_position(Doors(num_doors=number, glimpses=1), Reference.SCRIPTED, "natural", num_packs=150)
        gains.append(curve[-1] - curve[0])
    assert gains[0] > gains[1] + 0.1


def test_a_teacher_s_contexts_are_about_some_doors_and_it_takes_the_key_that_they_say():
    env = Doors(protocol="compact", teacher=TeacherDials(follow=1.0, context_true=0.0, context_junk=1.0))
    teacher = beside(env, Players).demonstrator(env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1))
    numbers = {len(env.wording.parse(teacher.context(random.Random(i)))) for i in range(60)}
    assert numbers == set(range(6, 13))
    seen = [Message(Role.SYSTEM, "doors 9=gold 2=red"), Message(Role.USER, "open=9")]
    assert {teacher.act(seen, random.Random(i)) for i in range(9)} == {"open=9 <answer>Key_gold</answer>"}
