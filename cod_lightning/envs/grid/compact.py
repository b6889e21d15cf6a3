"""The grid in fused words, for tiny policies: `moves=3 at(0,1) to(2,3)`, then `row2=0 at(2,1) moves=2`."""

import re
from collections.abc import Mapping, Sequence

from cod_lightning.envs.grid.chart import UNKNOWN, GridLabels
from cod_lightning.envs.grid.field import TOP, Cell, level_costs, units
from cod_lightning.envs.grid.parameters import GridParameters
from cod_lightning.envs.grid.task import GridTask, GridView
from cod_lightning.envs.grid.wording import GridWording, Standing
from cod_lightning.types import Message, Role


class CompactGrid(GridWording):
    """A fact is `row2=50` where all cells of a row cost the same, else `(1,2)=50`; answers are single words.

    All grids of such a world have one side, `parameters.side_max`, and costs of `parameters.levels` levels.
    """

    def __init__(self, parameters: GridParameters) -> None:
        super().__init__(parameters)
        self.side = parameters.side_max
        self.units = units(self.side, parameters.lanes)

    def rules(self, task: GridTask) -> str:
        return "grid"

    def observation(self, view: GridView, warning: str = "") -> str:
        """What the last move showed, the own cell, the moves left; at first all that is known, and the target."""
        left = f"moves={view.task.rounds - view.done}"
        here = _place("at", view.here)
        if view.path:
            rows, columns = view.shown
            near = (unit for unit in self.units if any(row in rows and column in columns for row, column in unit))
            facts = [self._fact(unit, view.task.costs) for unit in near]
            return " ".join([*(["warning"] if warning else []), *facts, here, left])
        facts = self._facts(view.chart.known())
        goal = _place("to", view.task.goal)
        return " ".join([*(["warning"] if warning else []), *facts, left, here, goal])

    def feedback(self, outcome: str, view: GridView, complaint: str) -> str:
        """The outcome, tenths of the loss or where it ended, and all that is known."""
        result = {
            "goal": [f"loss={int(10 * view.loss)}"],
            "miss": [_place("at", view.here), _place("to", view.task.goal)],
            "malformed": [],
        }[outcome]
        return " ".join([outcome, *result, *self._facts(view.chart.known())])

    def respond(self, to: Cell, labels: GridLabels, known: Mapping[Cell, int]) -> str:
        unit = next(unit for unit in self.units if to in unit)
        return f"{self._fact(unit, known)} <answer>{labels.cell(to)}</answer>"

    def write(self, known: Mapping[Cell, int], labels: GridLabels) -> str:
        return " ".join(self._fact(unit, known) for unit in self.units)

    def labels(self, messages: Sequence[Message]) -> GridLabels:
        return GridLabels.fixed(self.side)

    def standing(self, messages: Sequence[Message]) -> Standing:
        """From the words of every observation; warnings repeat a cell and are left out."""
        shown = [m.content for m in messages[1:] if m.role is Role.USER]
        stops = [_places("at", text)[0] for text in shown if not text.startswith("warning")]
        left = re.search(r"moves=(\d+)", shown[-1])
        assert left is not None, "the observation does not tell the moves left"
        return Standing(tuple(stops), _places("to", shown[0])[0], int(left[1]))

    def in_context(self, messages: Sequence[Message]) -> dict[Cell, int]:
        return self._read(messages[0].content)

    def seen(self, messages: Sequence[Message]) -> dict[Cell, int]:
        return self._read(" ".join(m.content for m in messages[1:] if m.role is Role.USER))

    def words(self) -> tuple[str, ...]:
        cells = [(r, c) for r in range(self.side) for c in range(self.side)]
        costs = (*map(str, level_costs(self.parameters.levels or 2)), UNKNOWN)
        labels = GridLabels.fixed(self.side)
        return (
            "grid",
            *(f"moves={left}" for left in range(1, self.parameters.rounds_max + 1)),
            *(_place(role, cell) for role in ("at", "to") for cell in cells),
            *(f"{self._name(unit)}={cost}" for unit in self.units for cost in costs),
            *(f"<answer>{labels.cell(cell)}</answer>" for cell in cells),
            *(f"loss={tenths}" for tenths in range(TOP // 10 + 1)),
            *("goal", "miss", "malformed", *(("warning",) if self.parameters.lenient else ())),
        )

    def _name(self, unit: Sequence[Cell]) -> str:
        row, column = unit[0]
        return f"row{row}" if self.parameters.lanes else f"({row},{column})"

    def _fact(self, unit: Sequence[Cell], known: Mapping[Cell, int] | Sequence[Sequence[int]]) -> str:
        if isinstance(known, Mapping):
            cost = next((str(known[cell]) for cell in unit if cell in known), UNKNOWN)
        else:
            cost = str(known[unit[0][0]][unit[0][1]])
        return f"{self._name(unit)}={cost}"

    def _facts(self, known: Mapping[Cell, int]) -> list[str]:
        return [self._fact(unit, known) for unit in self.units if any(cell in known for cell in unit)]

    def _read(self, text: str) -> dict[Cell, int]:
        pattern = r"\brow(\d)=(\d+)" if self.parameters.lanes else r"\((\d),(\d)\)=(\d+)"
        known: dict[Cell, int] = {}
        for *name, cost in re.findall(pattern, text, flags=re.ASCII):
            row, column = int(name[0]), int(name[-1])
            cells = [(row, c) for c in range(self.side)] if self.parameters.lanes else [(row, column)]
            known.update(dict.fromkeys(cells, int(cost)))
        return known


def _place(role: str, cell: Cell) -> str:
    return f"{role}({cell[0]},{cell[1]})"


def _places(role: str, text: str) -> list[Cell]:
    return [(int(r), int(c)) for r, c in re.findall(rf"{role}\((\d),(\d)\)", text)]
