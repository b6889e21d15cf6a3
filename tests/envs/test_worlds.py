"""What every world promises: the contract of `TextEnv`, for both worlds in both protocols."""

import copy
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from cod_lightning.envs import FrozenLakeObscure, Levers
from cod_lightning.envs.base import TextEnv
from cod_lightning.types import EpisodeStatus, Split
from tests.envs.scripted_life import live

ROOT = Path(__file__).parents[2]
WORLDS: dict[str, Callable[[], TextEnv]] = {
    "lake-natural": FrozenLakeObscure,
    "lake-natural-positions": lambda: FrozenLakeObscure(feedback="positions"),
    "lake-compact": lambda: FrozenLakeObscure(protocol="compact"),
    "lake-compact-positions": lambda: FrozenLakeObscure(protocol="compact", feedback="positions"),
    "lake-compact-3x3": lambda: FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, protocol="compact"),
    "lake-compact-8x8": lambda: FrozenLakeObscure(size_min=3, size_max=8, protocol="compact"),
    "levers-natural": Levers,
    "levers-compact": lambda: Levers(protocol="compact"),
}
COMPACT = [name for name in WORLDS if "compact" in name]
every_world = pytest.mark.parametrize("name", WORLDS)

ANSWERS = st.builds(
    "{0}<answer>{1}{2}{3}</answer>{4}".format,
    st.text(max_size=5),
    st.sampled_from(["Direction", "direction", "Lever", "lever", ""]),
    st.sampled_from([" ", "_", "\n", "", "\u2003"]),
    st.one_of(st.integers(-2, 12), st.text(max_size=5)),
    st.text(max_size=5),
)
LEGAL = st.sampled_from([f"<answer>{noun} {code}</answer>" for noun in ("Direction", "Lever") for code in range(1, 5)])
ACTIONS = st.lists(st.one_of(LEGAL, LEGAL, ANSWERS, st.text()), min_size=12, max_size=12)


@every_world
def test_gymnasiums_checker_finds_nothing_to_complain_about(name):
    check_env(WORLDS[name](), skip_render_check=True)


@every_world
@settings(max_examples=40, deadline=None)
@given(actions=ACTIONS, seed=st.integers(0, 2**31))
def test_any_text_is_a_legal_action(name, actions, seed):
    env = WORLDS[name]()
    observation, _ = env.reset(seed=seed)
    turns = 0
    for action in actions:
        turns += 1
        assert env.observation_space.contains(observation)
        observation, reward, terminated, truncated, info = env.step(action)
        low, high = env.reward_range
        assert low <= reward <= high
        assert (reward > 0) == env.success
        assert info == {}
        if terminated or truncated:
            break
    assert turns <= env.max_turns
    assert terminated or truncated
    assert not (terminated and truncated)
    assert (env.status is EpisodeStatus.TRUNCATED) == truncated
    assert env.observation_space.contains(observation)


@every_world
@pytest.mark.parametrize(
    "action", ["x" * 1_000_000, "<answer>" + "9" * 1_000_000, "\x00\ud800", "<answer>Direction 1" * 1000]
)
def test_huge_and_broken_text_is_only_a_format_error(name, action):
    env = WORLDS[name]()
    env.reset(seed=0)
    feedback, reward, terminated, _, _ = env.step(action)
    assert (reward, terminated, env.status) == (0.0, True, EpisodeStatus.MALFORMED)
    assert len(feedback) < 1000


@every_world
def test_a_copy_is_a_snapshot(name):
    env = WORLDS[name]()
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=2)
    env.reset(options={"task": pack.tasks[0]}, seed=1)
    rendered, snapshot = env.render(), copy.deepcopy(env)
    noun = "Lever" if name.startswith("levers") else "Direction"
    answers = [f"<answer>{noun} {code}</answer>" for code in (1, 2)]
    ours = env.step(answers[0])
    assert snapshot.render() == rendered
    assert snapshot.step(answers[0]) == ours
    assert env.reset() == snapshot.reset(), "the generator was copied too"


@every_world
def test_a_split_and_a_pack_index_give_the_same_worlds_whatever_was_played_before(name):
    env = WORLDS[name]()
    before = env.sample_pack(split=Split.VALIDATION, index=5, num_tasks=4)
    live(env, before, env.reference("random"), "natural")
    env.reset(seed=9)
    assert env.sample_pack(split=Split.VALIDATION, index=5, num_tasks=4) == before


@pytest.mark.parametrize("name", COMPACT)
@pytest.mark.parametrize("policy", ["random", "scripted", "teacher"])
def test_the_vocabulary_holds_every_word_that_is_ever_shown_or_said(name, policy):
    env = WORLDS[name]()
    words = set(env.words())
    for index in range(40):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=3)
        player = env.demonstrator(pack) if policy == "teacher" else env.reference(policy)
        lives = live(env, pack, player, "compact", seed=index)
        assert set(env.rules.split()) <= words
        for lived in lives:
            assert set(lived.text.split()) <= words
            assert set(lived.messages[0].content.split()) <= words


@pytest.mark.parametrize("name", COMPACT)
def test_malformed_feedback_is_in_the_vocabulary_and_no_word_is_listed_twice(name):
    env = WORLDS[name]()
    env.reset(seed=0)
    assert set(env.step("?")[0].split()) <= set(env.words())
    assert len(set(env.words())) == len(env.words())
    assert all(word.split() == [word] for word in env.words())


@every_world
def test_only_the_compact_protocol_has_a_closed_vocabulary(name):
    assert bool(WORLDS[name]().words()) == ("compact" in name)


@every_world
def test_demonstrations_are_always_well_formed(name):
    env = WORLDS[name]()
    protocol = "compact" if "compact" in name else "natural"
    for index in range(10):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=2)
        lives = live(env, pack, env.demonstrator(pack), protocol, seed=index)
        assert all("malformed" not in x.feedback and "could not be read" not in x.feedback for x in lives)


@every_world
def test_policies_are_stateless_and_repeat_themselves_with_the_same_noise(name):
    env = WORLDS[name]()
    protocol = "compact" if "compact" in name else "natural"
    pack = env.sample_pack(split=Split.TEST, index=1, num_tasks=3)
    for policy in (env.reference("random"), env.reference("scripted"), env.demonstrator(pack)):
        assert live(env, pack, policy, protocol, seed=4) == live(env, pack, policy, protocol, seed=4)


PAIRS: dict[str, Callable[[str], TextEnv]] = {
    "lake-4-5": lambda protocol: FrozenLakeObscure(protocol=protocol),  # type: ignore[arg-type]
    "lake-3-8": lambda protocol: FrozenLakeObscure(size_min=3, size_max=8, protocol=protocol),  # type: ignore[arg-type]
    "levers": lambda protocol: Levers(protocol=protocol),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", PAIRS)
def test_the_scripted_policy_plays_both_protocols_alike(name):
    for index in range(60):
        outcomes = []
        for protocol in ("natural", "compact"):
            env = PAIRS[name](protocol)
            pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4)
            lives = live(env, pack, env.reference("scripted"), protocol, seed=index)
            outcomes.append([(lived.reward, len(lived.messages)) for lived in lives])
        assert outcomes[0] == outcomes[1]


def _python(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return result.stdout


def test_the_same_seed_gives_the_same_transcript_in_every_process():
    code = """
from cod_lightning.types import Split
from tests.envs.scripted_life import live
from tests.envs.test_worlds import WORLDS
for name, make in WORLDS.items():
    env = make()
    pack = env.sample_pack(split=Split.TEST, index=2, num_tasks=3, seed=5)
    protocol = "compact" if "compact" in name else "natural"
    print(pack, [live(env, pack, p, protocol) for p in (env.reference("scripted"), env.demonstrator(pack))])
    print(env.reset(seed=11))
"""
    first, second = (_python(code, PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert first == second
    assert len(first) > 1000


def test_importing_and_playing_a_world_leaves_torch_alone():
    code = """
import sys
import cod_lightning.envs as envs
for make in (envs.FrozenLakeObscure, envs.Levers):
    env = make()
    env.reset(seed=0)
    env.step("<answer>Direction 1</answer>")
print([m for m in ("torch", "lightning", "transformers", "pygame") if m in sys.modules])
"""
    assert _python(code).strip() == "[]"


def test_draws_do_not_touch_the_global_generator():
    random.seed(3)
    state = random.getstate()
    env = FrozenLakeObscure()
    live(env, env.sample_pack(split=Split.TRAIN, index=0, num_tasks=2), env.reference("scripted"), "natural")
    assert random.getstate() == state
