"""The references of PDE Discovery: their order, by position, and what they write down."""

import random

import pytest

from cod_lightning.envs.base import HiddenRules, Players, Reference, TextEnv, beside
from cod_lightning.envs.pde import PDEDiscovery
from cod_lightning.envs.pde.policies import Note, read_note, write_note
from cod_lightning.types import Message, Role, Split
from tests.envs.scripted_life import live, success_by_position


def natural(**parameters) -> PDEDiscovery:
    """On a coarse grid."""
    return PDEDiscovery(**{"grid_points": 65, "time_levels": 401, **parameters})


def compact(**parameters) -> PDEDiscovery:
    """One probe per task, on a coarse grid."""
    small = {"protocol": "compact", "max_turns": 2, "point_budget": 4, "noise_level": 0.004, "world_memory": False}
    return natural(**{**small, **parameters})


def _success(env: TextEnv, kind: Reference, protocol: str, packs: int) -> list[float]:
    return success_by_position(env, kind, protocol, packs)


@pytest.mark.slow
def test_scripted_success_rises_in_sentences_random_play_fails_and_the_oracle_never_does():
    env = natural(world_memory=False)
    first, *_, last = _success(env, Reference.SCRIPTED, "natural", 16)
    assert first < 0.95
    assert last > 0.8
    assert last > first
    assert max(_success(env, Reference.RANDOM, "natural", 8)) < 0.4
    assert min(_success(env, Reference.ORACLE, "natural", 8)) == 1


@pytest.mark.slow
def test_scripted_success_rises_in_words():
    env = compact()
    first, *_, last = _success(env, Reference.SCRIPTED, "compact", 150)
    assert 0.2 < first < 0.45
    assert last > first + 0.15
    assert max(_success(env, Reference.RANDOM, "compact", 80)) < 0.3
    assert min(_success(env, Reference.ORACLE, "compact", 20)) == 1


@pytest.mark.parametrize(
    "parameters", [{"show_samples": False}, {"max_turns": 3}, {"point_budget": 1}, {"max_turns": 4}]
)
@pytest.mark.parametrize("kind", Reference)
def test_references_finish_in_tight_worlds(parameters, kind):
    env = natural(**parameters)
    for index in range(3):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=2)
        lives = live(env, pack, beside(env, Players).reference(kind, pack), "natural", index)
        if kind is Reference.RANDOM:  # its points may all be cut, or hold nothing
            assert all(lived.status != "malformed" for lived in lives)
        else:
            assert all(lived.status == "completed" for lived in lives)


@pytest.mark.slow
def test_after_a_change_the_scripted_player_drops_what_no_longer_fits():
    env = natural(world_memory=False)
    found = 0
    for index in range(6):
        pack = beside(env, HiddenRules).changed(
            env.sample_pack(split=Split.TRAIN, index=index, num_tasks=8), at=4, seed=0
        )
        found += live(env, pack, beside(env, Players).reference(Reference.SCRIPTED, pack), "natural", index)[7].success
    assert found >= 4


def test_a_note_is_read_back():
    note = Note(((0.5, -0.25), (1.25, 0.75)), (("u", 1.5), ("u**3", -0.8)), "likely")
    assert read_note(write_note(note)) == note
    assert read_note("- Nothing is known yet.") == Note()


def test_a_context_with_a_confirmed_equation_decides_where_data_are_poor():
    env = natural(world_memory=False, point_budget=1)
    hits = 0
    for index in range(6):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=1)
        player = beside(env, Players).reference(Reference.SCRIPTED, pack)
        shown = write_note(Note((), pack.tasks[0].spec.equation, "confirmed"))
        observation = env.reset(options={"task": pack.tasks[0]})[0]
        messages, ended = [Message(Role.SYSTEM, f"{env.rules}\n\n{shown}")], False
        while not ended:
            messages.append(Message(Role.USER, observation))
            messages.append(Message(Role.ASSISTANT, player.act(messages, random.Random(0))))
            observation, _, terminated, truncated, _ = env.step(messages[-1].content)
            ended = terminated or truncated
        hits += env.success
    assert hits >= 5
