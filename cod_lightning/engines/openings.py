"""Which slot of a cache begins with what: a new prompt goes on from the longest beginning that was computed before.

Dialogues of one world begin with its rules, those of one lifecycle with its context, siblings with the same task.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

Ids = tuple[int, ...]


class Openings:
    """The first prompt of each slot's dialogue, live or over, in order: those most alike are neighbours.

    >>> openings = Openings()
    >>> openings.put(3, (5, 6, 7))
    >>> openings.put(0, (5, 6, 8, 9))
    >>> openings.longest((5, 6, 8, 1))
    (0, 3)
    """

    def __init__(self) -> None:
        self._in_order: list[tuple[Ids, int]] = []
        self._of: dict[int, Ids] = {}

    def put(self, slot: int, ids: Ids) -> None:
        """The slot holds these from its first column on."""
        self.drop(slot)
        self._of[slot] = ids
        insort(self._in_order, (ids, slot))

    def drop(self, slot: int) -> None:
        """The slot is about to be overwritten."""
        if (ids := self._of.pop(slot, None)) is not None:
            del self._in_order[bisect_left(self._in_order, (ids, slot))]

    def longest(self, ids: Ids) -> tuple[int, int]:
        """A slot that begins with as many of these ids as any, and how many; (0, 0) where no slot is in use."""
        at = bisect_left(self._in_order, (ids, -1))
        most, where = 0, 0
        for opening, slot in self._in_order[max(0, at - 1) : at + 1]:
            if (num := num_alike(opening, ids)) > most:
                most, where = num, slot
        return where, most


def num_alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids both begin with.

    >>> num_alike((1, 2, 3), (1, 2, 4, 5))
    2
    """
    num = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        num += 1
    return num
