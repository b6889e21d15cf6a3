"""What code may use up in a turn: steps, memory, depth and output; and what its values may be."""

from typing import Any

MOST_LETTERS = 4_000
"""Of a program."""
MOST_STEPS = 20_000
MOST_CELLS = 200_000
"""Items and eighths of letters that are made in a turn."""
MOST_KEPT = 20_000
"""Cells that all variables hold together after a turn, and that any one value may hold when it is compared, shown or passed on."""
MOST_DEPTH = 80
"""Nesting of expressions, statements and calls."""
DEEPEST = 20
"""Nesting of a value."""
MOST_OUTPUT = 6_000
LARGEST = 2**60
"""Size of a whole number; below it no two have the same hash."""


class CodeRefused(Exception):
    """The code did what is not allowed or used up its bounds; nothing in the code can catch it."""


class CodeError(Exception):
    """The code went wrong as code does; `try` catches it."""


class Meter:
    """Counts what one turn uses up. Raises `CodeRefused` beyond the bounds."""

    def __init__(self) -> None:
        self.steps = self.cells = self.depth = 0

    def step(self, count: int = 1) -> None:
        """So much work."""
        self.steps += count
        if self.steps > MOST_STEPS:
            raise CodeRefused(f"more than {MOST_STEPS} steps")

    def made(self, size: int) -> None:
        """So many cells made."""
        self.cells += size
        self.step(1 + size // 64)
        if self.cells > MOST_CELLS:
            raise CodeRefused("too much memory")

    def deeper(self) -> None:
        """One level down; the caller comes up again by `depth -= 1`."""
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise CodeRefused("too deeply nested")

    def weigh(self, *values: Any) -> None:
        """Go through values as a comparison or a print would; what is shared counts each time, what holds itself never ends."""
        self.step(1 + weight(values) // 16)


def weight(values: Any) -> int:
    """Cells of a value written out. Raises `CodeRefused` for too many or too deep a nesting."""
    total, waiting = 0, [(values, 0)]
    while waiting:
        value, depth = waiting.pop()
        total += 1 + len(value) // 8 if isinstance(value, str) else 1
        if total > MOST_KEPT:
            raise CodeRefused("a value is too large")
        if isinstance(value, dict):
            inner = [*value.keys(), *value.values()]
        elif isinstance(value, (list, tuple)):
            inner = value
        else:
            inner = getattr(value, "held", tuple)()
        if inner:
            if depth > DEEPEST or len(inner) + len(waiting) > MOST_KEPT:
                raise CodeRefused("a value is too large or too deeply nested")
            waiting += [(one, depth + 1) for one in inner]
    return total


def size(value: Any) -> int:
    """Cells of the outermost level."""
    if isinstance(value, str):
        return len(value) // 8 + 1
    return len(value) if isinstance(value, (list, tuple, dict)) else 1


def checked(value: Any) -> Any:
    """A number, if it is in bounds."""
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise CodeError("OverflowError: a whole number is too large")
    return value
