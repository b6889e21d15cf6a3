"""Moves of a rook, and the route of an exact number of moves whose entered cells cost the least on average."""

import random
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cod_lightning.envs.grid.field import Cell

_NEVER = 1 << 50


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRoute:
    """Cells to stop at, in order, and what all entered cells cost, those entered before the route included."""

    stops: tuple[Cell, ...]
    total: int
    count: int


def entered(before: Cell, after: Cell) -> list[Cell]:
    """Cells that a move crosses, in order, the destination included and the origin not.

    >>> entered((2, 3), (2, 1))
    [(2, 2), (2, 1)]
    """
    (row, column), (to_row, to_column) = before, after
    if row == to_row:
        step = 1 if to_column > column else -1
        return [(row, c) for c in range(column + step, to_column + step, step)]
    step = 1 if to_row > row else -1
    return [(r, column) for r in range(row + step, to_row + step, step)]


def moves_from(cell: Cell, side: int) -> list[Cell]:
    """Every other cell of the row and the column."""
    row, column = cell
    along = [(row, c) for c in range(side) if c != column]
    return along + [(r, column) for r in range(side) if r != row]


def reachable(cell: Cell, goal: Cell, moves: int) -> bool:
    """True if exactly so many moves can end on the goal (sides of 3 and more)."""
    if moves == 0:
        return cell == goal
    if moves == 1:
        return cell != goal and (cell[0] == goal[0] or cell[1] == goal[1])
    return True


def random_move(cell: Cell, goal: Cell, moves: int, side: int, rng: random.Random) -> Cell:
    """Any move after which the goal can still be met with the last one."""
    return rng.choice([to for to in moves_from(cell, side) if reachable(to, goal, moves - 1)])


def best_route(costs: np.ndarray, start: Cell, goal: Cell, moves: int, spent: int = 0, count: int = 0) -> GridRoute:
    """The route with the lowest mean cost of entered cells, exactly; `spent` over `count` cells was paid before.

    The mean is a ratio: Dinkelbach's method minimises sum(den * cost - num) over routes by dynamic programming over moves, with
    num / den the best mean so far, until nothing improves. All in integers: `costs` holds int64, shape [side side].
    Raises ValueError if no such route exists.
    """
    along, down = _row_spans(costs), _row_spans(costs.T)
    lengths = _lengths(len(costs))
    num, den = int(costs.max()) * count + spent + int(costs.max()), count + 1 if count else 1
    best: GridRoute | None = None
    while True:
        stops = _cheapest(den * along - num * lengths, den * down - num * lengths, start, goal, moves)
        total, entered_count = spent, count
        for before, after in zip((start, *stops), stops, strict=False):
            if before[0] == after[0]:
                total += int(along[before[0], before[1], after[1]])
            else:
                total += int(down[before[1], before[0], after[0]])
            entered_count += abs(before[0] - after[0]) + abs(before[1] - after[1])
        if best is not None and total * best.count >= best.total * entered_count:
            return best
        best = GridRoute(stops=stops, total=total, count=entered_count)
        num, den = total, entered_count


def _row_spans(costs: np.ndarray) -> np.ndarray:
    """Cost of entered cells of moves along rows [row from to]; of the transposed costs, along columns [column from to]."""
    sums = np.concatenate([np.zeros((len(costs), 1), dtype=np.int64), costs.cumsum(axis=1)], axis=1)
    right = sums[:, None, 1:] - sums[:, 1:, None]
    left = sums[:, :-1, None] - sums[:, None, :-1]
    return np.where(np.triu(np.ones(costs.shape, dtype=bool)), right, left)


@lru_cache(maxsize=64)
def _lengths(side: int) -> np.ndarray:
    places = np.arange(side)
    return np.abs(places[:, None] - places)


def _cheapest(along: np.ndarray, down: np.ndarray, start: Cell, goal: Cell, moves: int) -> tuple[Cell, ...]:
    """Stops of the route of least summed weight; along [row from to], down [column from to]."""
    side = len(along)
    diagonal = np.arange(side)
    along[:, diagonal, diagonal] = down[:, diagonal, diagonal] = _NEVER
    value = np.full((side, side), _NEVER, dtype=np.int64)
    value[goal] = 0
    values = [value]
    for _ in range(moves - 1):
        by_row = (along + value[:, None, :]).min(axis=2)
        by_column = (down + value.T[:, None, :]).min(axis=2).T
        values.append(value := np.minimum(np.minimum(by_row, by_column), _NEVER))
    stops, (row, column) = [], start
    for value in reversed(values):
        in_row, in_column = along[row, column] + value[row], down[column, row] + value[:, column]
        if min(in_row.min(), in_column.min()) >= _NEVER // 2:
            raise ValueError(f"no {moves} moves lead from {start} to {goal}")
        if in_row.min() <= in_column.min():
            column = int(in_row.argmin())
        else:
            row = int(in_column.argmin())
        stops.append((row, column))
    return tuple(stops)
