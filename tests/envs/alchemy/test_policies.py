"""Who does alchemy without a model."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs import TeacherDials
from cod_lightning.envs.alchemy import Alchemy
from cod_lightning.envs.alchemy.notes import NaturalNotes
from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.base import Players, Reference, TextPolicy, beside
from cod_lightning.types import Message, Role, Split
from tests.envs.alchemy.worlds import COMPACT, HARD, MANY
from tests.envs.scripted_life import live, success_by_position

ALL = "alchemy a+a=0 a+b=k a+c=0 b+b=0 b+c=l c+c=0 k+k=0 k+l=p l+l=q"
NONE = "alchemy a+a=? a+b=? a+c=? b+b=? b+c=? c+c=? k+k=? k+l=? l+l=?"


def _answers(context: str, *shown: str, times: int = 40) -> set[str]:
    messages = [Message(Role.SYSTEM, context), Message(Role.USER, shown[0])]
    for text in shown[1:]:
        messages += [Message(Role.ASSISTANT, "try <answer>a+a</answer>"), Message(Role.USER, text)]
    env = Alchemy(**COMPACT)
    policy = beside(env, Players).reference(
        Reference.SCRIPTED, env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    )
    return {answer_of(policy.act(messages, random.Random(i)))[0] for i in range(times)}


@dataclass(frozen=True)
class Forgetful(TextPolicy):
    """Plays like another policy and notes nothing."""

    player: TextPolicy

    def act(self, messages, rng):
        return self.player.act(messages, rng)

    def note(self, messages, rng):
        return self.player.play.blank(messages)  # type: ignore[attr-defined]


def test_known_recipes_are_followed_in_order():
    assert _answers(ALL, "want=k") == {"a+b"}
    assert _answers(ALL, "want=p") <= {"a+b", "b+c"}
    assert _answers(ALL, "want=p", "a+b=k @k") == {"b+c"}
    assert _answers(ALL, "want=p", "a+b=k @k", "b+c=l @k @l") == {"k+l"}
    assert _answers(ALL, "want=q", "b+c=l @l") == {"l+l"}


def test_unknown_pairs_are_tried_the_likelier_ones_first():
    assert _answers(NONE, "want=k") == {"a+b", "a+c", "b+c"}
    assert _answers("alchemy a+b=0 a+c=0 b+c=0", "want=k") == {"a+a", "b+b", "c+c"}
    assert _answers("alchemy a+b=0 a+c=0", "want=k", "b+c=0") == {"a+a", "b+b", "c+c"}


def test_pairs_just_below_the_target_come_first():
    both = "alchemy a+b=k a+c=l"
    assert _answers(both, "want=p", "a+b=k @k", "a+c=l @k @l") == {"k+l"}
    assert _answers(f"{both} k+l=0", "want=p", "a+b=k @k") == {"k+k"}
    assert _answers(both, "want=p") <= {"a+b", "a+c"}, "on the way to k+l"


def test_one_element_twice_is_put_off_while_another_ingredient_may_be_found():
    assert _answers("alchemy a+b=k", "want=p", "a+b=k @k") == {"a+c", "b+c"}
    assert _answers("alchemy a+b=k", "want=p", "a+b=k @k", "a+c=0 @k", "b+c=0 @k") == {"k+k"}, "the last round"


def test_it_believes_its_eyes_more_than_the_context():
    assert _answers("alchemy a+b=k", "want=k", "a+b=0") == {"a+c", "b+c"}
    assert _answers("alchemy a+b=k b+c=p", "want=k", "b+b=0") == {"a+b"}, "a result two tiers up cannot be true"
    assert _answers("alchemy a+b=k k+l=p", "want=p", "a+c=k @k") == {"b+c", "a+b"}, "there is one recipe of k only"


def test_the_note_is_the_old_one_overruled_by_the_feedback():
    env = Alchemy(**COMPACT)
    policy = beside(env, Players).reference(
        Reference.SCRIPTED, env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    )
    old = "update a+a=? a+b=k a+c=? b+b=0 b+c=? c+c=? k+k=? k+l=p l+l=?"
    messages = [Message(Role.SYSTEM, old), Message(Role.USER, "late a+b=0 c+c=l k+k=0")]
    assert policy.note(messages, random.Random(0)) == "a+a=? a+b=0 a+c=? b+b=0 b+c=? c+c=l k+k=0 k+l=p l+l=?"


names = st.text("abcdefgh", min_size=3, max_size=5)


@given(st.dictionaries(st.tuples(names, names).map(sorted).map(tuple), st.one_of(names, st.just(""))))
def test_a_note_is_read_back_as_it_was_written(facts):
    assert NaturalNotes().parse(NaturalNotes().write(facts)) == facts


def test_the_later_of_two_statements_wins_and_other_text_says_nothing():
    parse = NaturalNotes().parse
    assert parse("b + a = c. Later: a+b=nothing") == {("a", "b"): ""}
    assert parse("x + 1 = 2, a + b = ?, A + B = C, abc + def") == {}


@pytest.mark.slow
def test_success_rises_with_the_position_only_for_whoever_takes_notes():
    env = Alchemy(**COMPACT)
    first, second, third, fourth = success_by_position(env, Reference.SCRIPTED, "compact", num_packs=200)
    assert 0.45 < first < 0.65
    assert second > first + 0.15
    assert third > 0.8
    assert fourth > 0.95
    random_play = success_by_position(env, Reference.RANDOM, "compact", num_packs=200)
    assert max(random_play) < 0.4
    assert success_by_position(env, Reference.ORACLE, "compact", num_packs=100) == [1.0] * 4
    packs = [env.sample_pack(split=Split.TRAIN, index=i, num_tasks=4) for i in range(200)]
    lives = [
        live(env, p, Forgetful(beside(env, Players).reference(Reference.SCRIPTED, p)), "compact", i)
        for i, p in enumerate(packs)
    ]
    forgetful = [sum(life[n].success for life in lives) / 200 for n in range(4)]
    assert max(forgetful) < 0.7
    assert min(forgetful) > max(random_play)


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters", [{**MANY, "show_tiers": False}, *(pytest.param(one, marks=pytest.mark.slow) for one in (MANY, HARD))]
)
def test_sentences_serve_the_scripted_policy_as_well(parameters):
    env = Alchemy(**parameters)
    first, *_, last = success_by_position(env, Reference.SCRIPTED, "natural", num_packs=60)
    assert first < 0.5
    assert last > first + 0.1
    assert success_by_position(env, Reference.ORACLE, "natural", num_packs=30) == [1.0] * 4
    assert max(success_by_position(env, Reference.RANDOM, "natural", num_packs=30)) < 0.5


def test_both_protocols_are_played_alike(monkeypatch):
    monkeypatch.setattr("cod_lightning.envs.alchemy.tasks.split_of", lambda recipes, targets: Split.TRAIN)
    for index in range(60):
        outcomes = []
        for protocol in ("natural", "compact"):
            env = Alchemy(**{**COMPACT, "protocol": protocol})
            pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4)
            lives = live(env, pack, beside(env, Players).reference(Reference.SCRIPTED, pack), protocol, seed=index)
            outcomes.append([(lived.reward, len(lived.messages)) for lived in lives])
        assert outcomes[0] == outcomes[1]


def test_a_perfect_teacher_that_was_told_the_truth_always_succeeds():
    dials = TeacherDials(context_accuracy=1.0, context_true=1.0, context_junk=0.0, follow=1.0)
    for parameters in (COMPACT, HARD):
        env = Alchemy(**parameters, teacher=dials)
        for index in range(15):
            pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4)
            assert all(
                lived.success
                for lived in live(env, pack, beside(env, Players).demonstrator(pack), env.parameters.protocol)
            )
