"""Tasks on lakes: drawing a lake, and the mapping that tasks share."""

import random
from dataclasses import dataclass

from cod_lightning.envs.frozen_lake.lake import MAPPINGS, distances, draw_lake, split_of
from cod_lightning.envs.frozen_lake.parameters import LakeParameters
from cod_lightning.envs.unchanging import Unchanging
from cod_lightning.errors import ConfigError
from cod_lightning.types import Split

_MOST_DRAWS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTask(Unchanging):
    """One lake, and what the codes mean."""

    rows: tuple[str, ...]
    mapping: tuple[str, ...]
    """Directions of codes 1, 2, 3, 4."""


def draw_mapping(parameters: LakeParameters, pack_seed: int) -> tuple[str, ...]:
    """One of those allowed."""
    return MAPPINGS[random.Random(pack_seed).choice(parameters.allowed)]


def draw_task(parameters: LakeParameters, seed: int, split: Split | None, mapping: tuple[str, ...]) -> LakeTask:
    """A lake whose shortest path has an allowed length."""
    rng = random.Random(seed)
    size = rng.randint(parameters.size_min, parameters.size_max)
    for _ in range(_MOST_DRAWS):
        lake = draw_lake(rng, size, rng.uniform(parameters.frozen_p_min, parameters.frozen_p_max))
        path = distances(lake).get(lake.find("S"), 0)
        fits = 1 <= path <= parameters.max_shortest_path
        if fits and split in (None, split_of(lake)):
            return LakeTask(rows=lake.rows, mapping=mapping)
    expected = f"a path length that a lake of size {size} has; none was found in {_MOST_DRAWS} maps"
    remedy = "Raise it, or data.env.frozen_p_max."
    raise ConfigError("data.env.max_shortest_path", parameters.max_shortest_path, expected, remedy)


def other_mapping(parameters: LakeParameters, old: tuple[str, ...], seed: int) -> tuple[str, ...]:
    """One of those allowed, but not the old one."""
    others = [MAPPINGS[i] for i in parameters.allowed if MAPPINGS[i] != old]
    if not others:
        raise ConfigError("data.env.mappings", parameters.allowed, "two or more, for a rule that changes", "Add one.")
    return random.Random(seed).choice(others)
