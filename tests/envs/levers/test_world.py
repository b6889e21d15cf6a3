"""Levers: packs, labels, teachers; what they say is in dialogues.txt."""

import random
from itertools import chain

from cod_lightning.envs import QuotingDials
from cod_lightning.envs.base import Players, Vocabulary, beside
from cod_lightning.envs.code_labels import NAMES, UNSEEN_NAMES, UNSEEN_WORDS, WORDS
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.levers.wording import COLOURS, MORE_COLOURS, NOUNS, UNSEEN_COLOURS, UNSEEN_NOUNS
from cod_lightning.types import Message, Role, Split
from tests.cases import each


def test_all_orders_and_goals_are_drawn():
    packs = [Levers().sample_pack(split=Split.TRAIN, index=i, num_tasks=4) for i in range(300)]
    assert len({task.spec.colours for pack in packs for task in pack.tasks}) == 24
    assert {task.spec.goal for pack in packs for task in pack.tasks} == set(COLOURS)


def _drawn(labels, split, number):
    """Labels and palettes of packs; a pack has one of each."""
    packs = [Levers(labels=labels).sample_pack(split=split, index=i, num_tasks=3) for i in range(number)]
    called = [{(task.spec.labels, task.spec.palette) for task in pack.tasks} for pack in packs]
    assert all(len(one) == 1 for one in called)
    return packs, [one.pop() for one in called]


def test_random_labels_draw_nouns_names_and_colours_and_leave_orders_and_goals_alone():
    plain = Levers()
    packs, called = _drawn("random", Split.TRAIN, 400)
    assert {labels.noun for labels, _ in called} == set(NOUNS)
    assert {labels.names for labels, _ in called} >= set(NAMES)
    assert {name for labels, _ in called for name in labels.names if labels.names not in NAMES} == set(WORDS)
    assert {colour for _, palette in called for colour in palette} == {*COLOURS, *MORE_COLOURS}
    assert plain.name != Levers(labels="random").name
    for i, (pack, (_, palette)) in enumerate(zip(packs, called, strict=True)):
        usual = dict(zip(palette, COLOURS, strict=True))
        others = plain.sample_pack(split=Split.TRAIN, index=i, num_tasks=3)
        assert [(usual[t.spec.goal], tuple(usual[c] for c in t.spec.colours)) for t in pack.tasks] == [
            (t.spec.goal, t.spec.colours) for t in others.tasks
        ]


def test_unseen_labels_share_no_noun_name_and_colour_with_those_of_training():
    _, called = _drawn("unseen", Split.TEST, 300)
    assert {labels.noun for labels, _ in called} == set(UNSEEN_NOUNS)
    assert {name for labels, _ in called for name in labels.names} == {*UNSEEN_WORDS, *chain(*UNSEEN_NAMES)}
    assert {colour for _, palette in called for colour in palette} == set(UNSEEN_COLOURS)
    trained = {*NOUNS, *chain(*NAMES), *WORDS, *COLOURS, *MORE_COLOURS}
    unseen = {*UNSEEN_NOUNS, *chain(*UNSEEN_NAMES), *UNSEEN_WORDS, *UNSEEN_COLOURS}
    assert not {word.lower() for word in trained} & {word.lower() for word in unseen}


@each(
    ("quotes", "stated", "said"),
    [
        (False, "1=red 2=? 3=blue 4=?", "blue <answer>Lever_3</answer>"),
        (True, "1=red 2=? 3=blue 4=?", "blue 3=blue <answer>Lever_3</answer>"),
        (True, "1=red 2=gold 3=? 4=green", "blue 3=blue <answer>Lever_3</answer>"),
        (True, "1=red 2=gold 3=? 4=?", "blue 4=? <answer>Lever_4</answer>"),
    ],
)
def test_a_teacher_that_quotes_repeats_the_fact_that_it_goes_by(quotes, stated, said):
    env = Levers(protocol="compact", teacher=QuotingDials(follow=1.0, quotes=quotes))
    teacher = beside(env, Players).demonstrator(env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1))
    seen = [Message(Role.SYSTEM, f"levers {stated}"), Message(Role.USER, "want=blue")]
    assert said in {teacher.act(seen, random.Random(i)) for i in range(20)}
    assert set(said.split()) <= set(beside(env, Vocabulary).words())


def test_in_sentences_a_teacher_that_quotes_goes_from_the_colour_to_the_lever_as_its_notes_do():
    env = Levers(teacher=QuotingDials(note_accuracy=1.0, follow=1.0, quotes=True))
    teacher = beside(env, Players).demonstrator(env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1))
    (noted,) = {teacher.note([Message(Role.USER, "Lever 3 gives blue.")], random.Random(i)) for i in range(9)}
    assert noted.splitlines()[1:3] == ["- Lever 2: unknown", "- Lever 3 gives blue, so blue Lever 3"]
    seen = [Message(Role.SYSTEM, noted), Message(Role.USER, env.wording.observation("blue", (), 2))]
    assert teacher.act(seen, random.Random(0)) == "The wanted colour is blue, so blue Lever 3 <answer>Lever 3</answer>"
    seen[1] = Message(Role.USER, env.wording.observation("red", (), 2))
    said = {teacher.act(seen, random.Random(i)) for i in range(30)}
    assert said == {f"The wanted colour is red, so red unknown Lever {i} <answer>Lever {i}</answer>" for i in (1, 2, 4)}
