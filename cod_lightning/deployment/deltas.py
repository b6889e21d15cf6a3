"""Texts by what changed since an earlier one, so that a file of versions grows with what is new and not with what is old."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import accumulate
from os.path import commonprefix

Delta = list[str | list[int]]
"""Parts of the new text in order: new letters, or [start, number of letters] of the text before."""
_BETWEEN = re.compile(r"(?<=\W)(?=[as3])")
"""Where a text is cut into pieces of some 30 letters: by its own letters, so that they stay the same where others come between."""
_MOST_PIECES = 20_000
"""Beyond which a middle that changed counts as new, since comparing would take seconds."""
_LEAST = 16
"""Letters that are copied; a copy takes about as many."""


def delta(before: str, after: str) -> Delta:
    """What makes `after` from `before`: `patched(before, delta(before, after)) == after`."""
    start = _num_alike(before, after)
    end = _num_alike(before[start:][::-1], after[start:][::-1])
    inner = _pieces_alike(before[start : len(before) - end], after[start : len(after) - end])
    blocks = [(start + first, start + other, number) for first, other, number in inner]
    parts, copy, at = Delta(), [0, start], start
    for first, other, number in [*blocks, (len(before) - end, len(after) - end, end)]:
        old, new = before[sum(copy) : first], after[at:other]
        copy[1] += (left := _num_alike(old, new))
        right = _num_alike(old[left:][::-1], new[left:][::-1])
        fresh, at = new[left : len(new) - right], other + number
        if not fresh and sum(copy) == first - right:
            copy[1] += right + number
            continue
        parts += [*([copy] if copy[1] else []), *([fresh] if fresh else [])]
        copy = [first - right, right + number]
    return [*parts, copy] if copy[1] else parts


def patched(before: str, parts: Sequence[str | list[int]]) -> str:
    """The text that the delta makes. Raises `TypeError` or `ValueError` for what is no delta."""
    made, at = list[str](), 0
    for part in parts:
        if isinstance(part, str):
            made.append(part)
            continue
        start, number = part
        if not at <= start <= start + number <= len(before):  # so what it makes is no longer than both together
            raise ValueError("a delta copies what is not there, or twice")
        made.append(before[start : start + number])
        at = start + number
    return "".join(made)


def _num_alike(one: str, other: str) -> int:
    """How many letters both begin with."""
    return len(commonprefix((one, other)))  # noqa: RUF071  (letters are meant)


def _pieces_alike(before: str, after: str) -> list[tuple[int, int, int]]:
    """Where parts of both are the same: starts in both, and number of letters, in the order of both."""
    old, new = _BETWEEN.split(before), _BETWEEN.split(after)
    if max(len(old), len(new)) > _MOST_PIECES:
        return []
    starts, others = ([0, *accumulate(map(len, pieces))] for pieces in (old, new))
    found = SequenceMatcher(None, old, new).get_matching_blocks()
    blocks = [(starts[first], others[other], starts[first + size] - starts[first]) for first, other, size in found]
    return [block for block in blocks if block[2] >= _LEAST]
