"""Bayes-optimal play of one lake: expectimax over cell, belief and turns left, with every mapping equally likely at first.

With b the mappings still possible, s the cell and n the turns left,

    V(s, b, n) = max over codes of the mean over b of [reward if the goal is reached, 0 in a hole, else V(s', b', n - 1)],

where b' are the mappings of b that lead to the same s'. A step off the edge is evidence too.
"""

from functools import lru_cache

from cod_lightning.envs.frozen_lake.belief import CODES, canonical, different_codes, one_of
from cod_lightning.envs.frozen_lake.lake import STEPS, Cell, distances_to, neighbour
from cod_lightning.envs.frozen_lake.wording import Shore

_EPSILON = 1e-9
_SPARE_TURNS = 10
"""Turns beyond the lake's longest path that a plan looks ahead."""


class Plan:
    """The best play of one lake; worked out where it is asked for, and remembered."""

    def __init__(self, shore: Shore, max_turns: int, length_penalty: float) -> None:
        self._away = distances_to(shore.goal, shore.holes, shore.size)
        self.turns = min(max_turns, max(self._away.values()) + _SPARE_TURNS)
        """Turns that are planned: all of them, unless there are far more than the lake can take."""
        self._goal = shore.goal
        self._rewards = [max(0.0, 1 - length_penalty * turn / max_turns) for turn in range(self.turns + 1)]
        self._steps = {cell: _steps(cell, shore) for cell in self._away}
        self._values: dict[tuple[Cell, int, int], float] = {}

    def best_codes(self, cell: Cell, belief: int, turn: int) -> list[int]:
        """Codes of the highest expected reward after `turn` turns; all of them if the plan ends before."""
        if turn >= self.turns or cell not in self._away:
            return list(CODES)
        values = {code: self._try(cell, belief, self.turns - turn, code) for code in CODES}
        highest = max(values.values())
        return [code for code, value in values.items() if value >= highest - _EPSILON]

    def value(self, cell: Cell, belief: int, left: int) -> float:
        """V, the expected reward with `left` turns left."""
        bound = self._bound(cell, left)
        if not bound or cell == self._goal or belief.bit_count() == 1:
            return bound
        belief = canonical(belief)
        known = self._values.get((cell, belief, left))
        if known is not None:
            return known
        best = 0.0
        for code in different_codes(belief):
            best = max(best, self._try(cell, belief, left, code, best))
            if best >= bound - _EPSILON:
                break
        self._values[cell, belief, left] = best
        return best

    def _try(self, cell: Cell, belief: int, left: int, code: int, at_least: float = -1.0) -> float:
        """Expected reward of one code and the best play after it; 0 if it cannot exceed `at_least`."""
        parts = [(after, part) for after, ways in self._steps[cell] if (part := belief & one_of(code, ways))]
        total = belief.bit_count()
        if sum(part.bit_count() * self._bound(after, left - 1) for after, part in parts) <= at_least * total:
            return 0.0
        return sum(part.bit_count() * self.value(after, part, left - 1) for after, part in parts) / total

    def _bound(self, cell: Cell, left: int) -> float:
        """Reward of the best play with a known mapping."""
        away = self._away[cell]
        return 0.0 if away > left else self._rewards[self.turns - left + away]


@lru_cache(maxsize=64)
def plan_of(shore: Shore, max_turns: int, length_penalty: float) -> Plan:
    """One plan for a lake, kept for the turns to come."""
    return Plan(shore, max_turns, length_penalty)


def _steps(cell: Cell, shore: Shore) -> tuple[tuple[Cell, tuple[str, ...]], ...]:
    """Where one may be next, and by which directions; holes are left out."""
    ways: dict[Cell, tuple[str, ...]] = {}
    for direction in STEPS:
        after = neighbour(cell, direction, shore.size)
        if after not in shore.holes:
            ways[after] = (*ways.get(after, ()), direction)
    return tuple(ways.items())
