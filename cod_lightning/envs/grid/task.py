"""One task on a hidden map, and how it stands: all that a wording may show."""

from dataclasses import dataclass

from cod_lightning.envs.grid.chart import Chart, GridLabels
from cod_lightning.envs.grid.field import Cell, Costs
from cod_lightning.envs.unchanging import Unchanging

NUM_RULES = 6
"""Rules of the natural protocol, whose order `labels: random` varies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridTask(Unchanging):
    """Where to go with how many moves, on which map, under which names."""

    costs: Costs
    start: Cell
    goal: Cell
    rounds: int
    """Moves, exactly."""
    row_names: tuple[str, ...]
    column_names: tuple[str, ...]
    order: tuple[int, ...]
    """Of the rules in the system text."""

    @property
    def labels(self) -> GridLabels:
        """Names of rows and columns."""
        return GridLabels(self.row_names, self.column_names)


@dataclass(slots=True, kw_only=True)
class GridView:
    """How a task stands."""

    task: GridTask
    chart: Chart
    here: Cell
    path: list[Cell]
    """Cells entered by the last move; empty before the first."""
    shown: tuple[range, range] = (range(0), range(0))
    """Rows and columns that the last move revealed."""
    done: int = 0
    """Moves made."""
    spent: int = 0
    """Cost of all entered cells so far."""
    count: int = 0
    """Number of entered cells so far, repeats counted."""

    @property
    def loss(self) -> float:
        """Mean cost of entered cells / 100; 0 before the first move."""
        return self.spent / self.count / 100 if self.count else 0.0
