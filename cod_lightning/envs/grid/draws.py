"""Tasks on the grid, and the drawing of maps, names and tasks from seeds."""

import random
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cod_lightning.envs.base import Unchanging, split_of_text
from cod_lightning.envs.checks import exhausted
from cod_lightning.envs.grid.chart import Chart
from cod_lightning.envs.grid.estimate import Prior
from cod_lightning.envs.grid.field import Cell, Costs, hill_costs, lane_costs, plain, text_of
from cod_lightning.envs.grid.parameters import GridParameters
from cod_lightning.envs.grid.rook import moves_from
from cod_lightning.types import Split


@dataclass(frozen=True, slots=True, kw_only=True)
class GridTask(Unchanging):
    """Where to go with how many moves, on which map."""

    costs: Costs
    start: Cell
    goal: Cell
    rounds: int
    """Moves, exactly."""


@dataclass(slots=True, kw_only=True)
class GridView:
    """How a task stands."""

    task: GridTask
    chart: Chart
    here: Cell
    path: list[Cell]
    """Cells entered by the last move; empty before the first."""
    shown: tuple[range, range] = (range(0), range(0))
    """Rows and columns that the last move revealed."""
    done: int = 0
    """Moves made."""
    spent: int = 0
    """Cost of all entered cells so far."""
    count: int = 0
    """Number of entered cells so far, repeats counted."""

    @property
    def loss(self) -> float:
        """Mean cost of entered cells / 100; 0 before the first move."""
        return self.spent / self.count / 100 if self.count else 0.0


_MOST_DRAWS = 2000
_PRIOR_MAPS = 64


def draw_map(parameters: GridParameters, seed: int, split: Split, side: int, other_than: Costs = ()) -> Costs:
    """A map of that side and split, different from the other one. Raises `ConfigError` where none is found.

    Lanes belong to no split: they are so few that a player without memory could learn in training what is never so in tests.
    """
    rng = np.random.default_rng(seed)
    for _ in range(_MOST_DRAWS):
        costs = plain(_field(parameters, rng, side))
        if costs != other_than and (parameters.lanes or split_of_text(text_of(costs)) is split):
            return costs
    wanted = f"sides above {side}, for maps of the split {split}"
    raise exhausted("side_min", parameters.side_min, wanted, _MOST_DRAWS, "Raise it, for more different maps.")


def draw_task(parameters: GridParameters, rng: random.Random, costs: Costs, split: Split) -> GridTask:
    """A random walk of exactly the drawn number of moves leads to the target, so a route exists.

    The walk is repeated until it does not end where it began; among lanes, from another start until both cells are of the split.
    """
    side = len(costs)
    rounds = rng.randint(parameters.rounds_min, parameters.rounds_max)
    for _ in range(_MOST_DRAWS):
        start = goal = (rng.randrange(side), rng.randrange(side))
        while goal == start:
            for _ in range(rounds):
                goal = rng.choice(moves_from(goal, side))
        if not parameters.lanes or split_of_text(f"{side}: {start} {goal}") is split:
            break
    else:
        wanted = f"sides above {side}, for a task of the split {split}"
        raise exhausted("side_min", parameters.side_min, wanted, _MOST_DRAWS, "Raise it.")
    return GridTask(costs=costs, start=start, goal=goal, rounds=rounds)


@lru_cache(maxsize=64)
def prior_of(parameters: GridParameters) -> Prior:
    """What maps with these parameters look like on average, from 64 of them."""
    side = (parameters.side_min + parameters.side_max) // 2
    maps = [_field(parameters, np.random.default_rng(i), side) for i in range(_PRIOR_MAPS)]
    reach = (parameters.scale_min + parameters.scale_max) / 3
    return Prior(lanes=parameters.lanes, mean=round(float(np.mean(maps)), 1), reach=round(reach, 3))


def _field(parameters: GridParameters, rng: np.random.Generator, side: int) -> np.ndarray:
    if parameters.lanes:
        return lane_costs(rng, side)
    return hill_costs(rng, side, parameters.hills, parameters.scale_min, parameters.scale_max)
