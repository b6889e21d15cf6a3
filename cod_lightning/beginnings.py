"""What two sequences begin with."""

from collections.abc import Sequence


def num_alike(one: Sequence[object], other: Sequence[object]) -> int:
    """How many elements both begin with.

    >>> num_alike((1, 2, 3), (1, 2, 4, 5)), num_alike("abc", "ab")
    (2, 2)
    """
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(one), len(other)))
