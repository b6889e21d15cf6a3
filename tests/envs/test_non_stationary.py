"""Packs whose rule changes."""

import pytest

from cod_lightning.envs.base import Players, Reference, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.errors import ConfigError
from cod_lightning.types import Split
from tests.envs.cases import WORLDS, every_world
from tests.envs.scripted_life import live


@every_world
def test_the_rule_changes_at_the_chosen_task_and_only_the_rule(name):
    inner = WORLDS[name].make()
    env = NonStationary(inner, change_at=2)
    pack = env.sample_pack(split=Split.TRAIN, index=1, num_tasks=4)
    plain = inner.sample_pack(split=Split.TRAIN, index=1, num_tasks=4)
    assert pack.tasks[:2] == plain.tasks[:2]
    assert all(a.spec != b.spec for a, b in zip(pack.tasks[2:], plain.tasks[2:], strict=True))
    assert pack.id != plain.id
    lives = live(env, pack, beside(env, Players).reference(Reference.SCRIPTED, pack), WORLDS[name].protocol)
    assert len(lives) == 4


def test_a_drawn_position_is_every_later_task_sometimes_and_the_same_each_time():
    env = NonStationary(Levers())
    packs = [env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4) for index in range(60)]
    positions = [env.change_position(pack) for pack in packs]
    assert set(positions) == {1, 2, 3}
    for pack, at in zip(packs, positions, strict=True):
        colours = [task.spec.colours for task in pack.tasks]
        assert len(set(colours)) == 2
        assert colours[at] != colours[at - 1]
    assert packs == [env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4) for index in range(60)]


def test_a_change_costs_the_scripted_policy_and_it_recovers():
    env = NonStationary(Levers(protocol="compact"), change_at=2)
    success = [0] * 5
    for index in range(200):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=5)
        lives = live(env, pack, beside(env, Players).reference(Reference.SCRIPTED, pack), "compact", seed=index)
        success = [s + lived.success for s, lived in zip(success, lives, strict=True)]
    assert success[1] > success[2] + 20
    assert success[4] > success[2] + 20


def test_a_pack_of_one_task_does_not_change():
    assert len(NonStationary(Levers()).sample_pack(split=Split.TEST, index=0, num_tasks=1)) == 1


def test_a_position_outside_the_pack_is_refused():
    with pytest.raises(ConfigError, match="change_at is 0"):
        NonStationary(Levers(), change_at=0)
    with pytest.raises(ConfigError, match=r"in 1\.\.3"):
        NonStationary(Levers(), change_at=4).sample_pack(split=Split.TEST, index=0, num_tasks=4)
