"""Worlds draw packs until one fits; where none of many does, the parameter to change is named."""

import re
from importlib import import_module

import pytest

from cod_lightning.envs.alchemy import Alchemy
from cod_lightning.envs.apps import Apps
from cod_lightning.envs.control import OptimalControl
from cod_lightning.envs.frozen_lake import FrozenLakeObscure
from cod_lightning.envs.grid import GridNavigation
from cod_lightning.envs.pde import PDEDiscovery
from cod_lightning.envs.terminal import Terminal
from cod_lightning.errors import ConfigError
from cod_lightning.types import Split
from tests.cases import each


@each(
    ("world", "counter", "key"),
    [
        (Alchemy, "alchemy.tasks._MOST_DRAWS", "base_min"),
        (Apps, "apps.world._MOST_DRAWS", "max_turns"),
        (OptimalControl, "control.draws.MOST_DRAWS", "b_max"),
        (FrozenLakeObscure, "frozen_lake.lake._MOST_DRAWS", "max_shortest_path"),
        (GridNavigation, "grid.draws._MOST_DRAWS", "side_min"),
        (PDEDiscovery, "pde.packs._MOST_DRAWS", "family"),
        (PDEDiscovery, "pde.packs._MOST_STATES", "family"),
        (Terminal, "terminal.world._MOST_DRAWS", "max_turns"),
    ],
)
def test_a_world_that_finds_nothing_to_play_says_so_and_never_hangs(world, counter, key, monkeypatch):
    env = world()
    if world is Apps:
        monkeypatch.setattr(env, "_facts", lambda rng, split: None)
    module, _, name = counter.rpartition(".")
    monkeypatch.setattr(import_module(f"cod_lightning.envs.{module}"), name, 0)
    with pytest.raises(ConfigError, match=rf"data\.env\.{key} is .*; none was found in 0 draws\. [A-Z]") as refused:
        env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1)
    assert re.search(r"(Raise|Widen|Choose)", refused.value.remedy)
