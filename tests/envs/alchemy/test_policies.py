"""Who does alchemy without a model."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.alchemy import Alchemy
from cod_lightning.envs.alchemy.graph import way_to
from cod_lightning.envs.alchemy.notes import NaturalNotes
from cod_lightning.envs.alchemy.policies import believed
from cod_lightning.envs.alchemy.wording import AlchemySeen
from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.base import Reference
from cod_lightning.types import Message, Role, Split
from tests.cases import each
from tests.envs.alchemy.worlds import COMPACT, HARD
from tests.envs.scripted_life import live, player

ALL = "alchemy a+a=0 a+b=k a+c=0 b+b=0 b+c=l c+c=0 k+k=0 k+l=p l+l=q"
NONE = "alchemy a+a=? a+b=? a+c=? b+b=? b+c=? c+c=? k+k=? k+l=? l+l=?"


def _answers(context: str, *shown: str, times: int = 40) -> set[str]:
    messages = [Message(Role.SYSTEM, context), Message(Role.USER, shown[0])]
    for text in shown[1:]:
        messages += [Message(Role.ASSISTANT, "try <answer>a+a</answer>"), Message(Role.USER, text)]
    env = Alchemy(**COMPACT)
    policy = player(env, env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1), Reference.SCRIPTED)
    return {answer_of(policy.act(messages, random.Random(i)))[0] for i in range(times)}


BOTH = "alchemy a+b=k a+c=l"


@each(
    ("context", "shown", "answers"),
    [
        # known recipes, in order
        (ALL, ["want=k"], {"a+b"}),
        (ALL, ["want=p"], {"a+b", "b+c"}),
        (ALL, ["want=p", "a+b=k @k"], {"b+c"}),
        (ALL, ["want=p", "a+b=k @k", "b+c=l @k @l"], {"k+l"}),
        (ALL, ["want=q", "b+c=l @l"], {"l+l"}),
        # unknown pairs, the likelier ones first
        (NONE, ["want=k"], {"a+b", "a+c", "b+c"}),
        ("alchemy a+b=0 a+c=0 b+c=0", ["want=k"], {"a+a", "b+b", "c+c"}),
        ("alchemy a+b=0 a+c=0", ["want=k", "b+c=0"], {"a+a", "b+b", "c+c"}),
        # pairs just below the target, or on the way to them
        (BOTH, ["want=p", "a+b=k @k", "a+c=l @k @l"], {"k+l"}),
        (f"{BOTH} k+l=0", ["want=p", "a+b=k @k"], {"k+k"}),
        (BOTH, ["want=p"], {"a+b", "a+c"}),
        # one element twice is put off while another ingredient may be found, until the last round
        ("alchemy a+b=k", ["want=p", "a+b=k @k"], {"a+c", "b+c"}),
        ("alchemy a+b=k", ["want=p", "a+b=k @k", "a+c=0 @k", "b+c=0 @k"], {"k+k"}),
        (NONE, ["want=k", "a+b=0", "a+a=0", "b+b=0"], {"a+c", "b+c"}),
        # its eyes count for more than the context; no result lies two tiers up, and k has one recipe only
        ("alchemy a+b=k", ["want=k", "a+b=0"], {"a+c", "b+c"}),
        ("alchemy a+b=k b+c=p", ["want=k", "b+b=0"], {"a+b"}),
        ("alchemy a+b=k k+l=p", ["want=p", "a+c=k @k"], {"b+c", "a+b"}),
    ],
)
def test_the_scripted_policy_follows_what_is_known_and_tries_what_is_likeliest(context, shown, answers):
    said = _answers(context, *shown)
    assert said <= answers
    assert said == answers or len(shown) == 1


def test_a_note_of_a_result_that_lies_no_higher_than_its_inputs_is_not_believed():
    seen = AlchemySeen(
        target="l", have={}, levels={"a": 0, "b": 0, "k": 1, "l": 1}, limited=False, single=False, gap=1, turns_left=4
    )
    noted = {("a", "b"): "k", ("a", "k"): "l", ("b", "k"): "", ("a", "z"): "l"}
    assert believed(seen, noted, {}) == {("a", "b"): "k", ("b", "k"): ""}


names = st.text("abcdefgh", min_size=3, max_size=5)


@given(st.dictionaries(st.tuples(names, names).map(sorted).map(tuple), st.one_of(names, st.just(""))))
def test_a_note_is_read_back_as_it_was_written(facts):
    assert NaturalNotes().parse(NaturalNotes().write(facts)) == facts


def test_the_later_of_two_statements_wins_and_other_text_says_nothing():
    parse = NaturalNotes().parse
    assert parse("b + a = c. Later: a+b=nothing") == {("a", "b"): ""}
    assert parse("x + 1 = 2, a + b = ?, A + B = C, abc + def") == {}


@each("parameters", [{}, HARD, COMPACT, {"recipes_max": 3, "tiers_max": 5}])
def test_the_oracle_makes_every_target_with_the_fewest_attempts(parameters):
    env = Alchemy(**parameters)
    for index in range(15):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4)
        for lived, task in zip(live(env, pack, Reference.ORACLE), pack.tasks, strict=True):
            spec, most = task.spec, env.max_turns
            have = dict.fromkeys(spec.tiers[0], spec.stock or 1)
            plan = way_to(spec.recipes, spec.tiers, spec.target, have, consume=env.parameters.limited, most=most)
            assert lived.reward == pytest.approx(1 - 0.1 * len(plan) / most)
