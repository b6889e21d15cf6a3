"""The observed map: which costs have been shown, as lines of text that are renewed only where a move showed something."""

import copy
from functools import lru_cache
from typing import Any

from cod_lightning.envs.facts import UNKNOWN
from cod_lightning.envs.grid.field import Cell, Costs


class Chart:
    """Costs as far as they have been shown."""

    def __init__(self, costs: Costs) -> None:
        self.costs, self._texts = costs, _texts(costs)
        self.cells = [[UNKNOWN] * len(costs) for _ in costs]
        self._lines = [f"{number} {' '.join(row)}" for number, row in enumerate(self.cells)]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Chart":
        """Only what changes is copied: a lifecycle copies its world."""
        twin = copy.copy(self)
        twin.cells, twin._lines = [row[:] for row in self.cells], self._lines[:]
        return twin

    def reveal(self, entered: list[Cell], radius: int) -> tuple[range, range]:
        """Show all cells within that Chebyshev distance of the entered ones, a straight line; returns rows and columns."""
        (row, column), (last_row, last_column) = entered[0], entered[-1]
        rows = _spread(row, last_row, radius, len(self.costs))
        columns = _spread(column, last_column, radius, len(self.costs))
        left, right = columns.start, columns.stop
        for at in rows:
            cells = self.cells[at]
            cells[left:right] = self._texts[at][left:right]
            self._lines[at] = f"{at} {' '.join(cells)}"
        return rows, columns

    def text(self) -> str:
        """A line of column numbers, then a line for each row, its number first."""
        return "\n".join([_header(len(self.costs)), *self._lines])

    def known(self) -> dict[Cell, int]:
        """What has been shown."""
        size = range(len(self.costs))
        return {(r, c): self.costs[r][c] for r in size for c in size if self.cells[r][c] != UNKNOWN}


def drawn_chart(known: dict[Cell, int], side: int) -> str:
    """A map with these costs as text.

    >>> print(drawn_chart({(0, 1): 7}, 2))
      0 1
    0 ? 7
    1 ? ?
    """
    rows = (" ".join([str(r), *(str(known.get((r, c), UNKNOWN)) for c in range(side))]) for r in range(side))
    return "\n".join([_header(side), *rows])


def read_chart(text: str) -> tuple[int, dict[Cell, int]]:
    """Side and costs of the map at the start of the text; raises ValueError where there is none.

    >>> read_chart("  0 1\\n0 ? 7\\n1 ? ?\\nand more")
    (2, {(0, 1): 7})
    """
    header, *lines = text.split("\n")
    side, known = len(header.split()), {}
    for row, line in enumerate(lines[:side]):
        cells = line.split()[1:]
        if len(cells) != side:
            raise ValueError("no map")
        known.update({(row, c): int(cell) for c, cell in enumerate(cells) if cell != UNKNOWN})
    if not side or len(lines) < side:
        raise ValueError("no map")
    return side, known


def _header(side: int) -> str:
    return f"  {' '.join(map(str, range(side)))}"


def _spread(first: int, last: int, radius: int, side: int) -> range:
    return range(max(0, min(first, last) - radius), min(side, max(first, last) + radius + 1))


@lru_cache(maxsize=4096)
def _texts(costs: Costs) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(map(str, row)) for row in costs)
