"""Packs whose rule changes."""

import pytest

from cod_lightning.envs.base import HiddenRules, Reference, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.envs.non_stationary import NonStationary
from cod_lightning.errors import ConfigError
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Split
from tests.envs.cases import WORLDS, every_world
from tests.envs.scripted_life import by_position, live


@every_world
def test_from_the_chosen_task_on_a_pack_has_the_changed_rule_and_it_can_be_played(name):
    inner = WORLDS[name].make()
    env = NonStationary(inner, change_at=2)
    pack = env.sample_pack(split=Split.TRAIN, index=1, num_tasks=4)
    plain = inner.sample_pack(split=Split.TRAIN, index=1, num_tasks=4)
    assert pack.tasks == beside(inner, HiddenRules).changed(plain, 2, derive_seed("change", 0, 1)).tasks
    assert pack.id != plain.id
    assert len(live(env, pack, Reference.SCRIPTED)) == 4


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


def test_a_change_costs_the_scripted_policy_which_recovers_and_is_within_the_pack():
    _, before, at, after = by_position(NonStationary(Levers(protocol="compact"), change_at=2), Reference.SCRIPTED, 200)
    assert min(before, after) > at + 0.1
    assert len(NonStationary(Levers()).sample_pack(split=Split.TEST, index=0, num_tasks=1)) == 1
    with pytest.raises(ConfigError, match=r"in 1\.\.3"):
        NonStationary(Levers(), change_at=4).sample_pack(split=Split.TEST, index=0, num_tasks=4)
