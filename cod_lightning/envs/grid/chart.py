"""The observed map: which costs have been shown, as lines of text that are renewed only where a move showed something."""

import copy
import random
import string
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cod_lightning.envs.grid.field import Cell, Costs

UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class GridLabels:
    """Names of rows, from the top, and of columns, from the left."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]

    @classmethod
    def fixed(cls, side: int) -> "GridLabels":
        """Numbers from 0."""
        names = tuple(map(str, range(side)))
        return cls(names, names)

    @classmethod
    def drawn(cls, side: int, rng: random.Random) -> "GridLabels":
        """Each of rows and columns: numbers from 0, numbers from 1, or letters."""
        kinds = (
            tuple(map(str, range(side))),
            tuple(map(str, range(1, side + 1))),
            tuple(string.ascii_uppercase[:side]),
        )
        return cls(rng.choice(kinds), rng.choice(kinds))

    def cell(self, cell: Cell) -> str:
        """As it is shown and answered.

        >>> GridLabels.fixed(3).cell((0, 2))
        '0,2'
        """
        return f"{self.rows[cell[0]]},{self.columns[cell[1]]}"

    def find(self, row: str, column: str) -> Cell | None:
        """The cell of these names (numbers may be padded, letters small), if there is one."""
        names = [str(int(name)) if name.isascii() and name.isdigit() else name.upper() for name in (row, column)]
        if names[0] in self.rows and names[1] in self.columns:
            return self.rows.index(names[0]), self.columns.index(names[1])
        return None


class Chart:
    """Costs as far as they have been shown."""

    def __init__(self, costs: Costs, labels: GridLabels) -> None:
        self.costs, self.labels = costs, labels
        self._texts = _texts(costs)
        self._header = f"  {' '.join(labels.columns)}"
        self.cells = [[UNKNOWN] * len(costs) for _ in costs]
        self._lines = [f"{name} {' '.join(row)}" for name, row in zip(labels.rows, self.cells, strict=True)]

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
            self._lines[at] = f"{self.labels.rows[at]} {' '.join(cells)}"
        return rows, columns

    def text(self) -> str:
        """A line of column names, then a line for each row, its name first."""
        return "\n".join([self._header, *self._lines])

    def known(self) -> dict[Cell, int]:
        """What has been shown."""
        size = range(len(self.costs))
        return {(r, c): self.costs[r][c] for r in size for c in size if self.cells[r][c] != UNKNOWN}


def drawn_chart(known: dict[Cell, int], labels: GridLabels) -> str:
    """A map with these costs as text.

    >>> print(drawn_chart({(0, 1): 7}, GridLabels.fixed(2)))
      0 1
    0 ? 7
    1 ? ?
    """
    lines = [f"  {' '.join(labels.columns)}"]
    for row, name in enumerate(labels.rows):
        lines.append(" ".join([name, *(str(known.get((row, c), UNKNOWN)) for c in range(len(labels.columns)))]))
    return "\n".join(lines)


def read_chart(text: str) -> tuple[GridLabels, dict[Cell, int]]:
    """Names and costs of the map at the start of the text; raises ValueError where there is none.

    >>> read_chart("  0 1\\n0 ? 7\\n1 ? ?\\nand more")[1]
    {(0, 1): 7}
    """
    header, *lines = text.split("\n")
    columns = tuple(header.split())
    rows, known = [], {}
    for row, line in enumerate(lines[: len(columns)]):
        name, *cells = line.split() or [""]
        if len(cells) != len(columns):
            raise ValueError("no map")
        rows.append(name)
        known.update({(row, c): int(cell) for c, cell in enumerate(cells) if cell != UNKNOWN})
    if not columns or len(rows) != len(columns):
        raise ValueError("no map")
    return GridLabels(tuple(rows), columns), known


def _spread(first: int, last: int, radius: int, side: int) -> range:
    return range(max(0, min(first, last) - radius), min(side, max(first, last) + radius + 1))


@lru_cache(maxsize=4096)
def _texts(costs: Costs) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(map(str, row)) for row in costs)
