"""Doors: packs, notes, teachers; what they say is in dialogues.txt."""

import random

from cod_lightning.envs import TeacherDials
from cod_lightning.envs.base import HiddenRules, Players, beside
from cod_lightning.envs.doors import Doors
from cod_lightning.envs.doors.wording import CompactDoors, NaturalDoors
from cod_lightning.types import Message, Role, Split
from tests.cases import each


@each("wording", [CompactDoors(12), NaturalDoors(12)])
def test_what_is_written_is_read_back_and_the_later_of_two_statements_counts(wording):
    facts = {1: "red", 7: "gold", 11: "blue"}
    assert wording.parse(wording.write(facts)) == facts
    assert wording.parse(wording.write({})) == {}
    both = f"{wording.write({7: 'red'})}\n{wording.write({7: 'gold', 1: 'blue'})}"
    assert wording.parse(both) == {7: "gold", 1: "blue"}
    assert wording.parse(wording.write({1: "red"}).replace("1", "99")) == {}


@each("answer", ["Key red", "key red", "KEY RED", "Key Red, I think"])
def test_a_key_is_read_whatever_the_case_as_a_lever_is(answer):
    assert NaturalDoors(4).key_of(f"<answer>{answer}</answer>") == ("red", "")


def test_glimpses_are_of_other_doors_and_a_door_that_was_asked_for_is_a_repeat():
    pack = Doors(num_doors=6, glimpses=3).sample_pack(split=Split.TEST, index=2, num_tasks=40)
    for n, task in enumerate(pack.tasks):
        assert len({*task.spec.glimpsed, task.spec.door}) == 4
        assert task.repeat == (task.spec.door in {one.spec.door for one in pack.tasks[:n]})


def test_a_change_gives_every_door_another_key():
    env = Doors(num_doors=5)
    pack = env.sample_pack(split=Split.TEST, index=0, num_tasks=6)
    after = beside(env, HiddenRules).changed(pack, 3, seed=1).tasks[3]
    assert not any(was == now for was, now in zip(pack.tasks[0].spec.keys, after.spec.keys, strict=True))


def test_a_teacher_s_contexts_are_about_some_doors_and_it_takes_the_key_that_they_say():
    env = Doors(protocol="compact", teacher=TeacherDials(follow=1.0, context_true=0.0, context_junk=1.0))
    teacher = beside(env, Players).demonstrator(env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1))
    numbers = {len(env.wording.parse(teacher.context(random.Random(i)))) for i in range(60)}
    assert numbers == set(range(6, 13))
    seen = [Message(Role.SYSTEM, "doors 9=gold 2=red"), Message(Role.USER, "open=9")]
    assert {teacher.act(seen, random.Random(i)) for i in range(9)} == {"open=9 <answer>Key_gold</answer>"}
