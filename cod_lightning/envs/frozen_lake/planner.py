"""Beliefs about the mapping, and Bayes-optimal play of one lake by them: expectimax over cell, belief and turns left.

A belief is which of the 24 mappings are still possible, as a mask of 24 bits (bit i for `MAPPINGS[i]`); at first every one is
equally likely. With b the mappings still possible, s the cell and n the turns left,

    V(s, b, n) = max over codes of the mean over b of [reward if the goal is reached, 0 in a hole, else V(s', b', n - 1)],

where b' are the mappings of b that lead to the same s'. A step off the edge is evidence too.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache

from cod_lightning.envs.frozen_lake.lake import (
    DIRECTIONS,
    MAPPINGS,
    STEPS,
    Cell,
    distances_to,
    neighbour,
)
from cod_lightning.envs.frozen_lake.wording import Shore

CODES = (1, 2, 3, 4)
ALL = 2 ** len(MAPPINGS) - 1
"""Nothing is known."""
_EPSILON = 1e-9
_SPARE_TURNS = 10
"""Turns beyond the lake's longest path that a plan looks ahead."""


def belief_in(mappings: Iterable[Sequence[str]]) -> int:
    """That it is one of these.

    >>> belief_in([MAPPINGS[0], MAPPINGS[2]])
    5
    """
    return sum(1 << i for i in {MAPPINGS.index(tuple(mapping)) for mapping in mappings})


_MEANS = {
    (code, direction): belief_in(m for m in MAPPINGS if m[code - 1] == direction)
    for code in CODES
    for direction in DIRECTIONS
}
_RECODED = tuple(
    tuple(MAPPINGS.index(tuple(mapping[code] for code in order)) for mapping in MAPPINGS)
    for order in itertools.permutations(range(4))
)
"""For each order of the codes: where each mapping goes."""


@cache
def one_of(code: int, directions: tuple[str, ...]) -> int:
    """That the code means one of these directions."""
    return sum(_MEANS[code, direction] for direction in directions)


def belief_of(facts: Mapping[int, str]) -> int:
    """That these facts hold; 0 if they cannot all."""
    belief = ALL
    for code, direction in facts.items():
        belief &= one_of(code, (direction,))
    return belief


def moved(code: int, before: Cell, after: Cell, size: int) -> int:
    """That the code led from one cell to the other; staying at an edge leaves one direction, in a corner two."""
    return one_of(code, tuple(d for d in STEPS if neighbour(before, d, size) == after))


def meaning(belief: int, code: int) -> str:
    """The direction that the code must mean, or nothing."""
    possible = [direction for direction in DIRECTIONS if belief & one_of(code, (direction,))]
    return possible[0] if len(possible) == 1 else ""


def facts_of(belief: int) -> dict[int, str]:
    """What is certain.

    >>> facts_of(belief_of({1: "up"}))
    {1: 'up'}
    """
    return {code: direction for code in CODES if (direction := meaning(belief, code))}


@lru_cache(maxsize=100_000)
def canonical(belief: int) -> int:
    """The least of the beliefs that differ only in how codes are numbered: play from all of them is worth the same."""
    mappings = [i for i in range(len(MAPPINGS)) if belief >> i & 1]
    return min(sum(1 << order[i] for i in mappings) for order in _RECODED)


@lru_cache(maxsize=100_000)
def different_codes(belief: int) -> tuple[int, ...]:
    """Codes to try, without those that are as good as a smaller one because the belief treats both alike."""
    return tuple(code for code in CODES if not any(_alike(belief, code, other) for other in range(1, code)))


def _alike(belief: int, code: int, other: int) -> bool:
    """Whether the belief stays the same when the two codes swap their meanings."""
    swapped: list[Sequence[str]] = []
    for mapping in (list(MAPPINGS[i]) for i in range(len(MAPPINGS)) if belief >> i & 1):
        mapping[code - 1], mapping[other - 1] = mapping[other - 1], mapping[code - 1]
        swapped.append(mapping)
    return belief_in(swapped) == belief


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
