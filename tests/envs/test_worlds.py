"""What every world promises beyond the rules of `check`, which `tests/evaluation/test_conformance.py` holds them to."""

import copy
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.apps import Apps
from cod_lightning.envs.base import Reference, Vocabulary, beside
from cod_lightning.envs.control import OptimalControl
from cod_lightning.envs.grid import GridNavigation
from cod_lightning.envs.invented import Invented
from cod_lightning.envs.ways import AppsWays, TerminalWays
from cod_lightning.types import EpisodeStatus, Message, Role, Split
from tests.cases import each
from tests.envs.cases import WORLDS, every_compact, every_world
from tests.envs.scripted_life import live, player

ROOT = Path(__file__).parents[2]


def responses(name: str) -> st.SearchStrategy[str]:
    """Well-formed ones, wild ones, and well-formed ones cut or soiled."""
    answers = WORLDS[name].answers
    cut = st.builds(lambda text, end: text[: int(len(text) * end)], answers, st.floats(0, 1))
    soiled = st.builds(lambda text, dirt: text.replace(" ", dirt), answers, st.text(max_size=3))
    return st.one_of(answers, answers, answers, st.text(), cut, soiled)


@every_world
@given(data=st.data(), seed=st.integers(0, 2**31))
def test_any_text_is_a_legal_action(name, data, seed):
    env = WORLDS[name].make()
    observation, _ = env.reset(seed=seed)
    turns = 0
    while turns < env.max_turns:
        turns += 1
        action = data.draw(responses(name))
        assert env.observation_space.contains(observation)
        observation, reward, terminated, truncated, info = env.step(action)
        low, high = env.traits.reward_range
        assert low <= reward <= high
        assert reward > 0 or not env.success
        assert info == {}
        if terminated or truncated:
            break
    assert terminated or truncated, "an episode ends within its turns"
    assert not (terminated and truncated)
    assert (env.status is EpisodeStatus.TRUNCATED) == truncated
    assert env.observation_space.contains(observation)


@every_world
@each("action", ["x" * 1_000_000, "<answer>" + "9" * 1_000_000, "\x00\ud800", "<answer>Direction 1" * 1000])
def test_huge_and_broken_text_is_only_a_format_error(name, action):
    env = WORLDS[name].make()
    env.reset(seed=0)
    feedback, reward, terminated, _, _ = env.step(action)
    assert (terminated, env.success, env.status) == (True, False, EpisodeStatus.MALFORMED)
    assert reward <= 0
    assert len(feedback) < 1000


@every_world
@each("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_is_a_snapshot(name, copied):
    env = WORLDS[name].make()
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
    observation, _ = env.reset(options={"task": pack.tasks[0]}, seed=1)
    messages = [Message(Role.SYSTEM, env.rules), Message(Role.USER, observation)]
    answer = player(env, pack, Reference.SCRIPTED).act(messages, random.Random(1))
    seen, snapshot = env._observed(), copied(env)
    ours = env.step(answer)
    assert snapshot._observed() == seen
    assert snapshot.step(answer) == ours
    assert env.reset() == snapshot.reset(), "the generator was copied too"


@every_compact
@each("policy", [*Reference, "teacher"])
def test_the_vocabulary_holds_every_word_that_is_ever_shown_or_said(name, policy):
    env = WORLDS[name].make()
    words = set(beside(env, Vocabulary).words())
    for index in range(6):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=3)
        for lived in live(env, pack, policy, index):
            assert {*env.rules.split(), *lived.text.split(), *lived.messages[0].content.split()} <= words


@every_world
def test_only_the_compact_protocol_has_a_closed_vocabulary_of_single_words_that_holds_those_of_malformed_feedback(name):
    env = WORLDS[name].make()
    env.reset(seed=0)
    feedback, words = env.step("?")[0], beside(env, Vocabulary).words()
    assert bool(words) == (WORLDS[name].protocol == "compact")
    assert not words or set(feedback.split()) <= set(words)
    assert len(set(words)) == len(words)
    assert all(word.split() == [word] for word in words)


@every_world
@each("policy", [*Reference, "teacher"])
def test_players_repeat_themselves_with_the_same_noise_and_demonstrations_are_well_formed(name, policy):
    env = WORLDS[name].make()
    for index in range(2 if policy == "teacher" else 1):
        pack = env.sample_pack(split=Split.TEST, index=index, num_tasks=3)
        stateless = player(env, pack, policy)
        first, second = (live(copy.deepcopy(env), pack, stateless, 4) for _ in range(2))
        assert first == second
        assert policy != "teacher" or EpisodeStatus.MALFORMED not in {lived.status for lived in first}


@pytest.mark.slow
def test_the_same_seed_gives_the_same_transcript_in_every_process():
    code = """
from cod_lightning.envs.base import Reference
from cod_lightning.types import Split
from tests.envs.cases import WORLDS
from tests.envs.scripted_life import live
for case in WORLDS.values():
    env = case.make()
    pack = env.sample_pack(split=Split.TEST, index=2, num_tasks=3, seed=5)
    print(pack, [live(env, pack, player) for player in [*Reference, "teacher"]])
    print(env.reset(seed=11))
"""
    own = {"cwd": ROOT, "capture_output": True, "text": True, "check": True}
    first, second = (
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": "."}, **own
        ).stdout
        for seed in ("1", "2")
    )
    assert first == second
    assert len(first) > 1000


@each(
    "make",
    [
        lambda: Invented(["order-4-2", "lookup-4-4", "offset-4"]),
        lambda: Invented(["order-4-2", "machine-2-3-3"], protocol="compact"),
        TerminalWays,
        AppsWays,
        lambda: Apps(templates=["cancel_orders", "like_genre"]),
        lambda: GridNavigation(protocol="compact", side_min=3, side_max=3, rounds_max=3),
        lambda: OptimalControl(protocol="compact", start_max=1, speed_max=0, target_max=1),
    ],
)
def test_a_task_that_asks_what_an_earlier_one_of_its_pack_did_is_a_repeat(make):
    env, found = make(), []
    for index in range(6):
        earlier = set()
        for task in env.sample_pack(split=Split.TRAIN, index=index, num_tasks=12).tasks:
            shown, _ = copy.deepcopy(env).reset(options={"task": task})
            assert task.repeat or shown not in earlier
            found.append(task.repeat)
            earlier.add(shown)
    assert set(found) == {False, True}
