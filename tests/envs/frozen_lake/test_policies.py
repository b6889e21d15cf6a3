"""Who plays the lake without a model."""

import random

import pytest

from cod_lightning.envs import TeacherDials
from cod_lightning.envs.answers import code_of
from cod_lightning.envs.base import Reference
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.frozen_lake.policies import RandomLakePolicy, ScriptedLakePolicy
from cod_lightning.envs.frozen_lake.wording import CompactLake
from cod_lightning.types import Message, Role, Split
from tests.envs.scripted_life import live, success_by_position

KNOWN = "lake 1=up 2=down 3=left 4=right"


def _answers(context: str, observation: str, *later: str, times: int = 60) -> set[int]:
    messages = [Message(Role.SYSTEM, context), Message(Role.USER, observation)]
    for text in later:
        messages += [Message(Role.ASSISTANT, "up <answer>Direction_1</answer>"), Message(Role.USER, text)]
    policy = ScriptedLakePolicy(CompactLake(3))
    return {code_of(policy.act(messages, random.Random(i)), "Direction", 4)[0] for i in range(times)}


def test_the_scripted_policy_takes_a_known_shortest_step():
    assert _answers(KNOWN, "O(1,0) O(1,1) G(2,2) @(0,0)") == {4}
    assert _answers(KNOWN, "G(2,2) @(0,0)") == {2, 4}


def test_it_prefers_a_step_whose_code_is_known():
    assert _answers("lake 1=? 2=down 3=? 4=?", "G(2,2) @(0,0)") == {2}


def test_it_tries_an_unknown_code_where_it_must():
    assert _answers("lake 1=up 2=? 3=? 4=?", "G(0,2) @(0,0)") == {2, 3, 4}


def test_it_believes_its_eyes_more_than_the_context():
    assert _answers("lake 4=left 1=right 2=? 3=?", "G(0,2) @(0,1)", "4=right @(0,1)") == {4}


def test_it_steps_aside_before_a_try_beside_a_hole():
    assert _answers("lake 1=? 2=? 3=up 4=?", "O(1,0) G(2,2) @(1,1)") == {3}
    assert _answers("lake 1=? 2=? 3=up 4=?", "O(0,1) O(1,0) G(2,2) @(1,1)") == {1, 2, 4}, "that is a hole as well"
    assert _answers("lake 1=? 2=? 3=up 4=?", "G(2,2) @(1,1)") == {1, 2, 4}, "no hole to fear"


def test_it_does_not_step_aside_where_it_would_step_back():
    assert _answers("lake 1=left 2=right 3=? 4=?", "O(0,1) G(2,1) @(1,1)") == {3, 4}


def test_scripted_success_rises_with_the_position():
    env = FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, protocol="compact")
    first, second, third, fourth = success_by_position(env, Reference.SCRIPTED, "compact", num_packs=150)
    assert 0.4 < first < 0.66
    assert second > first + 0.15
    assert min(third, fourth) > 0.9


@pytest.mark.parametrize("feedback", ["effect", "positions"])
def test_sentences_serve_the_scripted_policy_as_well_even_if_they_tell_only_cells(feedback):
    env = FrozenLakeObscure(feedback=feedback)
    first, *_, last = success_by_position(env, Reference.SCRIPTED, "natural", num_packs=60)
    assert first < 0.75
    assert last > 0.9


def test_random_play_stays_where_it_is():
    env = FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, protocol="compact")
    by_position = success_by_position(env, Reference.RANDOM, "compact", num_packs=150)
    assert max(by_position) - min(by_position) < 0.2
    assert max(by_position) < 0.5


def test_the_random_policy_notes_nothing():
    assert RandomLakePolicy(CompactLake(3)).note([], random.Random(0)) == "1=? 2=? 3=? 4=?"


def test_a_perfect_teacher_that_was_told_the_truth_walks_the_shortest_path():
    dials = TeacherDials(context_accuracy=1.0, context_true=1.0, context_junk=0.0, follow=1.0)
    env = FrozenLakeObscure(protocol="compact", teacher=dials)
    for index in range(20):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4)
        assert all(lived.success for lived in live(env, pack, env.demonstrator(pack), "compact"))


def test_a_teacher_that_does_not_follow_ignores_the_context():
    env = FrozenLakeObscure(size_min=3, size_max=3, protocol="compact", teacher=TeacherDials(follow=0.0))
    teacher = env.demonstrator(env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1))
    messages = [Message(Role.SYSTEM, KNOWN), Message(Role.USER, "G(0,2) @(0,0)")]
    said = {code_of(teacher.act(messages, random.Random(i)), "Direction", 4)[0] for i in range(60)}
    assert said == {1, 2, 3, 4}


@pytest.mark.parametrize("accuracy", [0.0, 1.0])
def test_a_teachers_note_follows_the_record_exactly_as_far_as_the_dial_says(accuracy):
    env = FrozenLakeObscure(protocol="compact", teacher=TeacherDials(note_accuracy=accuracy))
    teacher = env.demonstrator(env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1))
    asked = [
        [Message(Role.SYSTEM, "update"), Message(Role.USER, feedback)] for feedback in ("hole 1=up", "goal 3=left 2=up")
    ]
    first, second = ([teacher.note(messages, random.Random(i)) for i in range(20)] for messages in asked)
    if accuracy == 0.0:
        assert first == second
    else:
        assert (set(first), set(second)) == ({"1=up 2=? 3=? 4=?"}, {"1=? 2=up 3=left 4=?"})


@pytest.mark.parametrize("sizes", [(4, 5), (3, 8)])
def test_the_scripted_policy_plays_both_protocols_alike(sizes):
    smallest, largest = sizes
    for index in range(60):
        outcomes = []
        for protocol in ("natural", "compact"):
            env = FrozenLakeObscure(size_min=smallest, size_max=largest, protocol=protocol)
            pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4)
            lives = live(env, pack, env.reference(Reference.SCRIPTED, pack), protocol, seed=index)
            outcomes.append([(lived.reward, len(lived.messages)) for lived in lives])
        assert outcomes[0] == outcomes[1]
