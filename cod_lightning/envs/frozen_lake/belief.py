"""Beliefs about the mapping: which of the 24 are still possible, as a mask of 24 bits (bit i for `MAPPINGS[i]`)."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache

from cod_lightning.envs.frozen_lake.lake import DIRECTIONS, MAPPINGS, STEPS, Cell, neighbour

CODES = (1, 2, 3, 4)
ALL = 2 ** len(MAPPINGS) - 1
"""Nothing is known."""


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
