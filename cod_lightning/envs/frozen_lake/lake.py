"""Lakes: drawing them, walking on them, solving them breadth-first, and the split that each belongs to; tasks on them: their
parameters, checked, a lake with its code, and the mapping that tasks share."""

import itertools
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from cod_lightning.envs.base import Unchanging, split_of_text
from cod_lightning.envs.checks import check_span, exhausted
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import Count, Share
from cod_lightning.types import Split

Cell = tuple[int, int]
STEPS: dict[str, Cell] = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
"""Directions in gymnasium's order: the index is FrozenLake's action."""
DIRECTIONS = tuple(STEPS)
MAPPINGS = tuple(itertools.permutations(("down", "right", "up", "left")))
"""All 24 meanings of codes 1-4, in the order of itertools over the reference's base order."""
_MOST_DRAWS = 5000


@dataclass(frozen=True, slots=True)
class Lake(Unchanging):
    """A square map; rows of F (frozen), H (hole), S (start), G (goal)."""

    rows: tuple[str, ...]

    @property
    def size(self) -> int:
        """Cells of a side."""
        return len(self.rows)

    def find(self, letter: str) -> Cell:
        """The first cell with that letter."""
        return divmod("".join(self.rows).index(letter), self.size)

    def holes(self) -> tuple[Cell, ...]:
        """Holes in row order."""
        size = self.size
        return tuple([divmod(place, size) for place, letter in enumerate("".join(self.rows)) if letter == "H"])


def neighbour(cell: Cell, direction: str, size: int) -> Cell:
    """Where a step leads: the next cell, or the same one at the edge, as in gymnasium's lake (not slippery).

    >>> neighbour((0, 0), "right", 3), neighbour((0, 0), "up", 3)
    ((0, 1), (0, 0))
    """
    down, right = STEPS[direction]
    row, column = cell[0] + down, cell[1] + right
    return (row, column) if 0 <= row < size and 0 <= column < size else cell


@lru_cache(maxsize=8_192)
def distances(lake: Lake) -> dict[Cell, int]:
    """Moves from each cell to the goal by the shortest safe path, breadth-first; cells that cannot reach it are absent."""
    holes, goal = frozenset(lake.holes()), lake.find("G")
    return distances_to(goal, holes, lake.size)


@lru_cache(maxsize=8_192)
def distances_to(goal: Cell, holes: frozenset[Cell], size: int) -> dict[Cell, int]:
    """As `distances`, from the parts that an observation shows."""
    found = {goal: 0}
    queue = deque([goal])
    while queue:
        row, column = queue.popleft()
        for down, right in STEPS.values():
            cell = (row + down, column + right)
            inside = 0 <= cell[0] < size and 0 <= cell[1] < size
            if inside and cell not in holes and cell not in found:
                found[cell] = found[(row, column)] + 1
                queue.append(cell)
    return found


def draw_lake(rng: random.Random, size: int, frozen_p: float) -> Lake:
    """A map with each cell frozen with that probability, start and goal on two different cells; maybe unsolvable."""
    cells = ["F" if rng.random() < frozen_p else "H" for _ in range(size * size)]
    start, goal = rng.sample(range(size * size), 2)
    cells[start], cells[goal] = "S", "G"
    return Lake(tuple("".join(cells[r * size : (r + 1) * size]) for r in range(size)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeParameters(Unchanging):
    """The parameters of `FrozenLakeObscure`. Raises `ConfigError` for what cannot work."""

    size_min: int = 4
    """Smallest side of a map, 3 to 8."""
    size_max: int = 5
    """Largest side of a map, 3 to 8."""
    frozen_p_min: float = 0.6
    """Smallest probability that a tile is frozen."""
    frozen_p_max: float = 0.7
    """Largest probability that a tile is frozen."""
    max_turns: Count = 8
    """Steps per task."""
    max_shortest_path: int = 6
    """Maps whose shortest safe path is longer are redrawn."""
    length_penalty: Share = 0.1
    """A success with t turns is worth 1 - length_penalty * t / max_turns."""
    feedback: Literal["effect", "positions"] = "effect"
    """Whether observations name the direction moved (effect) or only the cells (positions, as in the paper)."""
    protocol: Literal["natural", "compact"] = "natural"
    """Sentences for language models (natural) or fused words for tiny policies (compact)."""
    names_place: bool = False
    """Whether sentences say in words, too, where the player is; else only the map shows it, as in the paper."""
    mappings: Sequence[int] | None = None
    """Which of the 24 mappings may be drawn, by index; null for all."""

    @property
    def name(self) -> str:
        """Identity of the worlds: equal for parameters that draw the same ones."""
        drawn = "" if self.mappings is None else "-m" + ".".join(map(str, self.mappings))
        return (
            f"frozen_lake-{self.size_min}-{self.size_max}-p{self.frozen_p_min:g}-{self.frozen_p_max:g}"
            f"-path1-{self.max_shortest_path}{drawn}"
        )

    @property
    def allowed(self) -> tuple[int, ...]:
        """Mappings that may be drawn, by index."""
        return tuple(range(24)) if self.mappings is None else tuple(self.mappings)

    @property
    def names_effects(self) -> bool:
        """Whether observations name directions."""
        return self.feedback == "effect"

    @property
    def fixed_size(self) -> int | None:
        """The side of all maps, if all have the same."""
        return self.size_max if self.size_min == self.size_max else None

    def __post_init__(self) -> None:
        check_span("size_min", self.size_min, "size_max", self.size_max, 3, 8, "Choose both in 3..8.")
        low, high = self.frozen_p_min, self.frozen_p_max
        check_span("frozen_p_min", low, "frozen_p_max", high, 0, 1, "Use 0.6 to 0.7.", above=True)
        if not 1 <= self.max_shortest_path <= self.max_turns:
            expected = f"1 to max_turns ({self.max_turns}), since longer maps cannot be solved"
            remedy = "Lower it, or raise data.env.max_turns."
            raise ConfigError("data.env.max_shortest_path", self.max_shortest_path, expected, remedy)
        known = set(self.allowed) <= set(range(24))
        if not self.allowed or not known or len(set(self.allowed)) < len(self.allowed):
            expected = "different indices in 0..23, at least one"
            raise ConfigError("data.env.mappings", self.allowed, expected, "Leave it out for all 24.")


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTask(Unchanging):
    """One lake, and what the codes mean."""

    rows: tuple[str, ...]
    mapping: tuple[str, ...]
    """Directions of codes 1, 2, 3, 4."""


def draw_task(parameters: LakeParameters, seed: int, split: Split, mapping: tuple[str, ...]) -> LakeTask:
    """A lake whose shortest path has an allowed length."""
    rng = random.Random(seed)
    size = rng.randint(parameters.size_min, parameters.size_max)
    for _ in range(_MOST_DRAWS):
        lake = draw_lake(rng, size, rng.uniform(parameters.frozen_p_min, parameters.frozen_p_max))
        path = distances(lake).get(lake.find("S"), 0)
        if 1 <= path <= parameters.max_shortest_path and split_of_text("/".join(lake.rows)) is split:
            return LakeTask(rows=lake.rows, mapping=mapping)
    wanted, remedy = f"a path length that a lake of size {size} has", "Raise it, or data.env.frozen_p_max."
    raise exhausted("max_shortest_path", parameters.max_shortest_path, wanted, _MOST_DRAWS, remedy)


def other_mapping(parameters: LakeParameters, old: tuple[str, ...], seed: int) -> tuple[str, ...]:
    """One of those allowed, but not the old one."""
    others = [MAPPINGS[i] for i in parameters.allowed if MAPPINGS[i] != old]
    if not others:
        raise ConfigError("data.env.mappings", parameters.allowed, "two or more, for a rule that changes", "Add one.")
    return random.Random(seed).choice(others)
