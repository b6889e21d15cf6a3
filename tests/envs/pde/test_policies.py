"""PDE Discovery: what references write down, noise and packs; what it says is in dialogues.txt."""

import random

import pytest

from cod_lightning.envs.base import HiddenRules, Players, Reference, beside
from cod_lightning.envs.pde import PDEDiscovery
from cod_lightning.envs.pde.library import FAMILIES
from cod_lightning.envs.pde.policies import Note, read_note, write_note
from cod_lightning.types import Message, Role, Split
from tests.cases import each
from tests.envs.pde.cases import natural
from tests.envs.scripted_life import live


@pytest.mark.slow
def test_after_a_change_the_scripted_player_drops_what_no_longer_fits():
    env = natural(world_memory=False)
    found = 0
    for index in range(6):
        pack = beside(env, HiddenRules).changed(
            env.sample_pack(split=Split.TRAIN, index=index, num_tasks=8), at=4, seed=0
        )
        found += live(env, pack, Reference.SCRIPTED, index)[7].success
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


def test_noise_is_a_function_of_the_task_and_of_the_number_of_the_sample():
    twice = '<point x="0.5" t="0.05"/>' * 2
    first, second = natural(), natural()
    task = first.sample_pack(split=Split.TRAIN, index=0, num_tasks=1).tasks[0]
    for env in (first, second, first):
        env.reset(options={"task": task})
        env.step(f"<answer><sample_pde_data>{twice}</sample_pde_data></answer>")
    one, two, *later = first._desk.merged
    assert (one, two) == tuple(second._desk.merged)
    assert len({one, two, *later}) == 4, "an earlier attempt's samples count"
    assert abs(one.u - two.u) < 0.02


def test_the_benchmark_takes_its_templates_in_turn():
    env = natural(family="physical_full_eval_4000", max_terms=3)
    for index in (0, 13, 24, 26):
        spec = env.sample_pack(split=Split.TEST, index=index, num_tasks=1).tasks[0].spec
        template = FAMILIES["physical_full_eval_4000"][index % 25]
        assert {(t, 1 if c > 0 else -1) for t, c in spec.equation} == set(template)


def test_an_equation_whose_numbers_are_rounded_away_is_not_proposed():
    env = PDEDiscovery(noise_level=0.0)
    pack = env.sample_pack(split=Split.TEST, index=2, num_tasks=2)
    assert [lived.success for lived in live(env, pack, Reference.SCRIPTED)] == [True, True]


@pytest.mark.slow
@each(("noise", "expected"), [(0.0, 0.93), (0.02, 0.58)])
def test_the_scripted_player_counts_on_as_much_noise_as_there_is(noise, expected):
    env = PDEDiscovery(noise_level=noise)
    packs = [env.sample_pack(split=Split.TEST, index=index, num_tasks=4) for index in range(8)]
    rewards = [lived.reward for pack in packs for lived in live(env, pack, Reference.SCRIPTED)]
    assert sum(rewards) / len(rewards) > expected
