"""A mixture of worlds."""

import copy
from collections import Counter

import pytest
from gymnasium.utils.env_checker import check_env

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import HiddenRules, Reference, Traits, Variants, Vocabulary, beside
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.mixture import Mixture
from cod_lightning.evaluation.references import play_reference
from cod_lightning.types import Split
from tests.envs.scripted_life import live


def _mixture(**weights: float) -> Mixture:
    lake = FrozenLakeObscure(size_min=3, size_max=3, max_turns=6, protocol="compact")
    return Mixture({"lake": lake, "levers": Levers(protocol="compact")}, weights or None)


def test_packs_come_from_the_worlds_by_weight_and_are_never_mixed():
    env = _mixture(lake=3, levers=1)
    packs = [env.sample_pack(split=Split.TRAIN, index=index, num_tasks=3) for index in range(400)]
    drawn = Counter(next(iter({task.spec.world for task in pack.tasks})) for pack in packs)
    assert 260 < drawn["lake"] < 340
    assert all(len({task.spec.world for task in pack.tasks}) == 1 for pack in packs)
    assert len({pack.id for pack in packs}) == 400
    assert packs == [env.sample_pack(split=Split.TRAIN, index=index, num_tasks=3) for index in range(400)]


def test_the_order_in_which_weights_are_named_draws_no_other_packs():
    first, second = _mixture(lake=3, levers=1), _mixture(levers=1, lake=3)
    for index in range(20):
        pack = first.sample_pack(split=Split.TRAIN, index=index, num_tasks=2)
        assert second.sample_pack(split=Split.TRAIN, index=index, num_tasks=2) == pack


def test_a_pack_is_played_exactly_as_in_its_own_world():
    env = _mixture()
    for index in range(12):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=3)
        alone = env.worlds[pack.tasks[0].spec.world]
        same = alone.sample_pack(split=Split.TRAIN, index=index, num_tasks=3)
        assert pack.id == same.id
        for kind in Reference:
            mixed = live(copy.deepcopy(env), pack, kind)
            assert mixed == live(copy.deepcopy(alone), same, kind)
        assert live(env, pack, "teacher") == live(alone, same, "teacher")


def test_the_vocabulary_is_that_of_all_worlds_without_repeats():
    env = _mixture()
    words = beside(env, Vocabulary).words()
    assert len(words) == len(set(words))
    assert set(words) == set(beside(env.worlds["lake"], Vocabulary).words()) | set(
        beside(env.worlds["levers"], Vocabulary).words()
    )
    assert beside(Mixture({"a": Levers(protocol="compact"), "b": Levers()}), Vocabulary).words() == ()


def test_gymnasiums_checker_finds_nothing_to_complain_about():
    check_env(_mixture(), skip_render_check=True)


def test_a_rule_changes_within_its_world():
    env = _mixture()
    pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=3)
    changed = beside(env, HiddenRules).changed(pack, at=1, seed=0)
    assert changed.tasks[0] == pack.tasks[0]
    assert changed.tasks[1] != pack.tasks[1]
    assert {task.spec.world for task in changed.tasks} == {task.spec.world for task in pack.tasks}


def test_which_world_a_pack_is_of_goes_by_split_seed_and_index():
    env, rows = _mixture(), set()
    for split in Split:
        for seed in (0, 1):
            packs = [env.sample_pack(split=split, index=index, num_tasks=1, seed=seed) for index in range(60)]
            rows.add("".join(pack.tasks[0].spec.world[:2] for pack in packs))
    assert len(rows) == 6


def test_the_reward_is_hidden_in_every_task_of_a_world_that_hides_it_and_in_none_of_another():
    class Hiding(Levers):
        traits = Traits(hides_reward=True)

    for worlds in ({"open": Levers(), "hiding": Hiding()}, {"hiding": Hiding(), "open": Levers()}):
        for key in worlds:
            env, mechanism = beside(Mixture(worlds), Variants).of_category(key), HintContext(response_limit=None)
            pack = env.sample_pack(split=Split.TRAIN, index=0, num_tasks=3)
            (life,) = play_reference(env, [pack], Reference.SCRIPTED, mechanism)
            assert [solve.reward_hidden for solve in life.solves] == [key == "hiding"] * 3
            shown = ["# Reward" in update.turns[0].observation for update in life.updates]
            assert shown == [key == "open"] * 2


class Stuck(Levers):
    """Levers that cannot be closed, and count how often they were to be."""

    def __init__(self):
        super().__init__()
        self.closed = 0

    def close(self):
        self.closed += 1
        raise RuntimeError("stuck")


def test_a_world_that_cannot_be_closed_leaves_none_of_the_others_open():
    worlds = {"a": Stuck(), "b": Stuck()}
    with pytest.raises(RuntimeError, match="stuck"):
        Mixture(worlds).close()
    assert [world.closed for world in worlds.values()] == [1, 1]
