"""Lakes: drawing them, walking on them, solving them breadth-first, and the split that each belongs to."""

import itertools
import random
from collections import deque
from dataclasses import dataclass
from functools import lru_cache

from cod_lightning.envs.base import Unchanging
from cod_lightning.envs.splits import split_of_text
from cod_lightning.types import Split

Cell = tuple[int, int]
STEPS: dict[str, Cell] = {"left": (0, -1), "down": (1, 0), "right": (0, 1), "up": (-1, 0)}
"""Directions in gymnasium's order: the index is FrozenLake's action."""
DIRECTIONS = tuple(STEPS)
MAPPINGS = tuple(itertools.permutations(("down", "right", "up", "left")))
"""All 24 meanings of codes 1-4, in the order of itertools over the reference's base order."""


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


def split_of(lake: Lake) -> Split:
    """The one split that this map belongs to."""
    return split_of_text("/".join(lake.rows))


def draw_lake(rng: random.Random, size: int, frozen_p: float) -> Lake:
    """A map with each cell frozen with that probability, start and goal on two different cells; maybe unsolvable."""
    cells = ["F" if rng.random() < frozen_p else "H" for _ in range(size * size)]
    start, goal = rng.sample(range(size * size), 2)
    cells[start], cells[goal] = "S", "G"
    return Lake(tuple("".join(cells[r * size : (r + 1) * size]) for r in range(size)))
