"""Levers: rewards, endings, words, packs, references."""

import random
from itertools import chain

import pytest

from cod_lightning.envs import QuotingDials
from cod_lightning.envs.base import HiddenRules, Players, Vocabulary, beside
from cod_lightning.envs.code_labels import NAMES, UNSEEN_NAMES, UNSEEN_WORDS, WORDS, CodeLabels
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.levers.wording import COLOURS, MORE_COLOURS, NOUNS, UNSEEN_COLOURS, UNSEEN_NOUNS
from cod_lightning.envs.levers.world import LeverTask
from cod_lightning.types import EpisodeStatus, Message, Role, Split, Task


def _started(**parameters) -> tuple[Levers, str]:
    env = Levers(**{"protocol": "compact", **parameters})
    return env, env.reset(options={"task": Task(id="0", seed=0, spec=LeverTask(goal="blue", colours=COLOURS))})[0]


def _pull(env: Levers, code: int):
    return env.step(f"<answer>Lever {code}</answer>")


def test_the_wanted_colour_wins():
    env, first = _started()
    assert (env.rules, first) == ("levers", "want=blue")
    assert _pull(env, 1) == ("1=red", 0.0, False, False, {})
    assert _pull(env, 3) == ("win 1=red 3=blue", 1.0, True, False, {})
    assert env.success
    assert env.status is EpisodeStatus.COMPLETED


def test_a_length_penalty_counts_pulls():
    env, _ = _started(length_penalty=0.2)
    assert _pull(env, 3)[1] == pytest.approx(0.9)


def test_without_pulls_left_the_task_is_missed():
    env, _ = _started()
    _pull(env, 1)
    assert _pull(env, 1) == ("miss 1=red", 0.0, False, True, {})
    assert not env.success
    assert env.status is EpisodeStatus.TRUNCATED


@pytest.mark.parametrize("action", ["", "blue", "<answer>Lever 5</answer>", "<answer>Direction 1</answer>"])
def test_a_format_error_ends_the_task_at_once(action):
    env, _ = _started()
    assert env.step(action) == ("malformed", 0.0, True, False, {})
    assert env.status is EpisodeStatus.MALFORMED


def test_sentences_say_the_same():
    env, first = _started(protocol="natural")
    assert "The wanted colour is blue" in first
    assert "Lever 1 gives red." in _pull(env, 1)[0]
    assert "wanted colour was blue" in _pull(env, 2)[0]
    env, _ = _started(protocol="natural")
    assert "That is the wanted colour" in _pull(env, 3)[0]
    env, _ = _started(protocol="natural")
    feedback = env.step("no")[0]
    assert "<answer> occurs 0 times" in feedback
    assert "<answer>Lever X</answer>" in feedback


def test_a_pack_has_one_order_and_is_a_function_of_its_identity():
    packs = [Levers().sample_pack(split=Split.TRAIN, index=i, num_tasks=4) for i in range(300)]
    assert packs == [
        Levers(protocol="compact").sample_pack(split=Split.TRAIN, index=i, num_tasks=4) for i in range(300)
    ]
    orders = [{task.spec.colours for task in pack.tasks} for pack in packs]
    assert all(len(order) == 1 for order in orders)
    assert len(set.union(*orders)) == 24
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


def test_names_without_an_order_are_listed():
    assert CodeLabels("Cord", ("otter", "maple", "bridge", "tiger")).span == "otter, maple, bridge and tiger"


def test_a_change_keeps_the_colours_of_the_pack():
    env = Levers(labels="random")
    pack = env.sample_pack(split=Split.TRAIN, index=5, num_tasks=4)
    changed = beside(env, HiddenRules).changed(pack, 2, 0).tasks[3].spec
    assert changed.colours != pack.tasks[3].spec.colours
    assert set(changed.colours) == set(changed.palette) == set(pack.tasks[3].spec.palette)


def test_a_switch_is_shown_and_answered_like_a_lever():
    env = Levers(labels="random")
    spec = LeverTask(goal="blue", colours=COLOURS, labels=CodeLabels("Switch", ("w", "x", "y", "z")))
    first = env.reset(options={"task": Task(id="0", seed=0, spec=spec)})[0]
    assert "There are four switches, w to z." in env.rules
    assert "Which switch do you pull?" in first
    assert "Switch w gives red." in env.step("<answer>Switch w</answer>")[0]
    assert env.step("<answer>switch_Y</answer>")[1] == 1.0
    env.reset(options={"task": Task(id="0", seed=0, spec=spec)})
    assert "<answer>Switch X</answer> with X from w to z" in env.step("<answer>Lever 1</answer>")[0]


@pytest.mark.parametrize(
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
