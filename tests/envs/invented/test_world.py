"""Invented domains: one grammar, endings, splits, references, teacher."""

import random

import pytest

from cod_lightning.envs import TeacherDials
from cod_lightning.envs.base import Players, Reference, Variants, Vocabulary, beside
from cod_lightning.envs.invented import Invented
from cod_lightning.envs.invented.kinds import FAMILIES, expand, names_of
from cod_lightning.envs.invented.world import InventedTask
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.types import Message, Role, Split
from tests.cases import each
from tests.envs.scripted_life import by_position


def spec(pack) -> InventedTask:
    return pack.tasks[0].spec


@each("protocol", ["natural", "compact"])
@each("kind", ["lookup-4-4", "graph-5-2", "order-4-2"])
def test_what_is_written_is_read_back(protocol, kind):
    env = Invented([kind], protocol=protocol)
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    facts = spec(pack).rule.facts
    assert tuple(env.wording.parse(env.wording.context(facts))) == facts
    observation, _ = env.reset(options={"task": pack.tasks[0]})
    goal = spec(pack).goal
    assert env.wording.shown([Message(Role.USER, observation)]) == (goal.start, goal.want, goal.menu, 0)
    assert env.wording.parse(env.wording.context(())) == []
    if protocol == "compact":
        assert env.wording.parse(observation) == []


@each("held_out", [100, 1792])
def test_a_world_is_in_one_split_and_names_are_of_the_part_that_was_asked_for(held_out):
    drawn = {}
    for words in ("seen", "unseen"):
        env = Invented(["lookup", "order"], words=words, protocol="compact", held_out=held_out)
        assert {*names_of("seen"), *names_of("unseen", held_out)} <= set(beside(env, Vocabulary).words())
        assert not {*names_of("unseen")[held_out:]} & set(beside(env, Vocabulary).words())
        for split in Split:
            packs = [env.sample_pack(split=split, index=i, num_tasks=2) for i in range(60)]
            drawn[words, split] = {spec(pack).rule for pack in packs}
            names = {name for rule in drawn[words, split] for name in (*rule.states, *rule.actions, *rule.results)}
            assert names <= set(names_of(words, held_out))
    assert sum(map(len, drawn.values())) == len(set.union(*drawn.values()))


def test_all_kinds_are_drawn_and_a_category_is_one_of_them():
    env = Invented(["lookup", "graph-4-2"])
    packs = [env.sample_pack(split=Split.TRAIN, index=i, num_tasks=1) for i in range(200)]
    kinds = set(beside(env, Variants).categories())
    assert {spec(pack).rule.kind for pack in packs} == kinds == set(expand(["lookup", "graph-4-2"]))
    only = beside(env, Variants).of_category("graph-4-2")
    own = [only.sample_pack(split=Split.TRAIN, index=i, num_tasks=1) for i in range(9)]
    assert {spec(pack).rule.kind for pack in own} == {"graph-4-2"}
    assert own[0].id != packs[0].id


@pytest.mark.parametrize(
    ("family", "protocol"),
    [
        pytest.param(family, protocol, marks=pytest.mark.slow if (n + 5 * m) % 6 else ())
        for n, family in enumerate(FAMILIES)
        for m, protocol in enumerate(("natural", "compact"))
    ],
)
def test_scripted_success_rises_with_the_position_random_play_does_not_and_the_oracle_never_fails(family, protocol):
    env = Invented([family], protocol=protocol)
    first, *_, last = by_position(env, Reference.SCRIPTED, 60)
    assert last - first > (0.05 if family in ("forbidden", "machine") else 0.15)
    random_first, *_, random_last = by_position(env, Reference.RANDOM, 60)
    assert abs(random_last - random_first) < 0.25
    assert by_position(env, Reference.ORACLE, 20) == [1.0] * 4


@each(("accuracy", "kept"), [(1.0, 1.0), (0.0, 0.0), (0.5, 0.5)])
def test_a_teachers_note_follows_the_record_as_far_as_the_dial_says(accuracy, kept):
    env = Invented(["machine"], protocol="compact", teacher=TeacherDials(note_accuracy=accuracy))
    right = stated = 0
    for index in range(60):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=1)
        facts = spec(pack).rule.facts[:4]
        record = [Message(Role.SYSTEM, "update"), Message(Role.USER, f"{env.wording.facts(facts)} over")]
        noted = env.wording.parse(beside(env, Players).demonstrator(pack).note(record, random.Random(index)))
        right, stated = right + len(set(noted) & set(facts)), stated + len(facts)
    assert right / stated == pytest.approx(kept, abs=0.2)


def test_a_demonstration_looks_up_what_is_stated_and_infers_nothing():
    env = Invented(["lookup-4-2"], protocol="compact", teacher=TeacherDials(follow=1.0))
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    teacher, goal = beside(env, Players).demonstrator(pack), spec(pack).goal
    facts, first = {fact[2]: fact for fact in spec(pack).rule.facts}, goal.menu[0]

    def answered(*noted):
        context = env.wording.facts(facts[action] for action in noted)
        dialogue = [Message(Role.SYSTEM, f"domain {context}".strip()), Message(Role.USER, env.wording.opening(goal))]
        return teacher.act(dialogue, random.Random(0))

    right, wrong = ([a for a in goal.menu if (facts[a][1] == goal.want) == good] for good in (True, False))
    assert answered(*wrong) == answered() == f"<answer> {goal.start} {goal.want} use {first} </answer>"
    assert answered(wrong[0], right[0]) == f"<answer> {goal.start} {goal.want} {right[0]} </answer>"


def test_a_demonstrated_context_holds_facts_of_the_pack_or_none():
    env = Invented(
        ["graph"], protocol="compact", teacher=TeacherDials(context_accuracy=1.0, context_true=0.8, context_junk=0.0)
    )
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=4)
    truth, teacher = set(spec(pack).rule.facts), beside(env, Players).demonstrator(pack)
    contexts = [env.wording.parse(teacher.context(random.Random(i))) for i in range(100)]
    assert all(set(context) <= truth for context in contexts)
    assert 10 < sum(not context for context in contexts) < 30


def test_after_a_change_one_action_of_a_menu_is_right_where_the_family_draws_them_so():
    for kind in ("order", "forbidden"):
        env = NonStationary(Invented([kind]), change_at=1)
        for index in range(30):
            for task in env.sample_pack(split=Split.TEST, index=index, num_tasks=4).tasks:
                rule, goal = task.spec.rule, task.spec.goal
                assert sum(rule.effects[goal.start, action][0] == goal.want for action in goal.menu) == 1
