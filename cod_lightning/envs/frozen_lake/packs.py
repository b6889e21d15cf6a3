"""Tasks on lakes: drawing a lake, and the mapping and labels that tasks share."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from cod_lightning.envs.frozen_lake.labels import FIXED, LakeLabels
from cod_lightning.envs.frozen_lake.lake import MAPPINGS, distances, draw_lake, split_of
from cod_lightning.envs.frozen_lake.parameters import LakeParameters
from cod_lightning.envs.unchanging import Unchanging
from cod_lightning.errors import ConfigError
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Split

_MOST_DRAWS = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTask(Unchanging):
    """One lake, what the codes mean, and how they are called."""

    rows: tuple[str, ...]
    mapping: tuple[str, ...]
    """Directions of codes 1, 2, 3, 4."""
    labels: LakeLabels = FIXED


def draw_labels(parameters: LakeParameters, seed: int) -> LakeLabels:
    """The fixed ones, or a pack's own."""
    return FIXED if parameters.labels == "fixed" else LakeLabels.draw(derive_seed(seed, "labels"))


def draw_mapping(parameters: LakeParameters, pack_seed: int, task_seed: int) -> tuple[str, ...]:
    """By scope: drawn from the pack's seed, from the task's, or the first of those allowed."""
    if parameters.mapping_scope == "global":
        return MAPPINGS[parameters.allowed[0]]
    seed = pack_seed if parameters.mapping_scope == "per_pack" else derive_seed(task_seed, "mapping")
    return MAPPINGS[random.Random(seed).choice(parameters.allowed)]


def draw_task(
    parameters: LakeParameters, seed: int, split: Split | None, mapping: tuple[str, ...], labels: LakeLabels
) -> LakeTask:
    """A lake whose shortest path has an allowed length.

    Stratified, the length is drawn first, all being equally likely. A length that a map of this size and split does not
    show in 5000 draws is dropped, and another one is drawn from the rest.
    """
    rng = random.Random(seed)
    size = rng.randint(parameters.size_min, parameters.size_max)
    lengths = range(parameters.min_shortest_path, parameters.max_shortest_path + 1)
    strata = [[n] for n in rng.sample(lengths, len(lengths))] if parameters.stratify else [lengths]
    for stratum in strata:
        for _ in range(_MOST_DRAWS):
            lake = draw_lake(rng, size, rng.uniform(parameters.frozen_p_min, parameters.frozen_p_max))
            path = distances(lake).get(lake.find("S"), 0)
            if path in stratum and split in (None, split_of(lake)):
                return LakeTask(rows=lake.rows, mapping=mapping, labels=labels)
    expected = f"a path length that a lake of size {size} has; none was found in {_MOST_DRAWS} maps"
    remedy = "Lower it, or raise data.env.size_min or data.env.max_shortest_path."
    raise ConfigError("data.env.min_shortest_path", parameters.min_shortest_path, expected, remedy)


def other_mappings(parameters: LakeParameters, old: Sequence[tuple[str, ...]], seed: int) -> list[tuple[str, ...]]:
    """Another mapping for tasks that had these: one for all, or one for each where every task has its own."""
    rng = random.Random(seed)
    if parameters.mapping_scope == "per_task":
        return [_other_mapping(parameters, mapping, rng) for mapping in old]
    return [_other_mapping(parameters, old[0], rng)] * len(old)


def _other_mapping(parameters: LakeParameters, old: tuple[str, ...], rng: random.Random) -> tuple[str, ...]:
    others = [MAPPINGS[i] for i in parameters.allowed if MAPPINGS[i] != old]
    if not others:
        raise ConfigError("data.env.mappings", parameters.allowed, "two or more, for a rule that changes", "Add one.")
    return rng.choice(others)
