"""Two renderings of the grid: sentences and a map for language models, fused words for tiny policies."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.grid.chart import UNKNOWN, GridLabels, drawn_chart, read_chart
from cod_lightning.envs.grid.draws import GridTask, GridView
from cod_lightning.envs.grid.field import TOP, Cell, level_costs, units
from cod_lightning.envs.grid.parameters import GridParameters
from cod_lightning.envs.task_world import WorldWording
from cod_lightning.envs.unchanging import Unchanging
from cod_lightning.types import Message, Role


@dataclass(frozen=True, slots=True)
class Standing:
    """A task as read back from a dialogue."""

    stops: tuple[Cell, ...]
    """Start, and where each move ended."""
    goal: Cell
    left: int
    """Moves left."""


class _GridWords(Unchanging, WorldWording):
    """What both renderings share."""

    def __init__(self, parameters: GridParameters) -> None:
        self.parameters = parameters


class NaturalGrid(_GridWords):
    """Full sentences and the observed map. Facts as in the reference, sentences our own."""

    observed, noted = "Observed map:\n", "Known costs:\n"

    def rules(self, task: GridTask) -> str:
        """System text; the same for all tasks of a pack."""
        rows, columns = task.labels.rows, task.labels.columns
        rules = [
            "A move takes you to any other cell of your row or your column. You enter every cell that you cross and the one "
            "where you stop, but not the one that you leave.",
            "A task names a target and an exact number of moves. Only where the last move ends counts; passing the target "
            "earlier does not end the task. With one move left you must stand in the target's row or column, not on the target.",
            f"{self._reveal()} {self._memory()}",
            "The loss is the mean cost of all entered cells divided by 100; a cell entered twice counts twice. Because it is a "
            "mean, a long way over cheap cells can be better than a short one. The reward is 1 - loss if you end on the "
            "target, else 0.",
            "An answer that cannot be read, or a move off the grid, to your own cell or out of line, ends the task with reward "
            f"0.{' The first one of a task is only warned of and costs no move.' if self.parameters.lenient else ''}",
            "Unseen cells may be cheap. Over many tasks it pays to have seen different parts of the grid.",
        ]
        lanes = "\n- All cells of a row cost the same." if self.parameters.lanes else ""
        listed = "\n".join(f"- {rules[i]}" for i in task.order)
        return (
            f"You move over a square grid whose cells have hidden costs, whole numbers from 0 to {TOP}. The costs are the same in "
            "related tasks, so what you find out may pay later.\n\n"
            f"Rows are named {rows[0]} to {rows[-1]} from the top, columns {columns[0]} to {columns[-1]} from the left; a cell is "
            f"written row,column.\n\nRules:\n{listed}{lanes}\n\n"
            "Answer with brief reasoning, then exactly one cell in this form:\n<answer>row,column</answer>"
        )

    def observation(self, view: GridView, warning: str = "") -> str:
        """What is seen before a move; the warning names the rule that the last answer broke."""
        task, cell = view.task, view.task.labels.cell
        warned = f"Warning: {warning}; no move was made.\n" if warning else ""
        return (
            f"{warned}Move {view.done + 1} of {task.rounds}.\n{self._last(view)}"
            f"You are at {cell(view.here)}; the target is {cell(task.goal)}.\n"
            f"{self.observed}{view.chart.text()}\n"
            f"Moves left, this one included: {task.rounds - view.done}; the last must end on the target. Which cell of your row or "
            "column do you move to?"
        )

    def feedback(self, outcome: str, view: GridView, complaint: str) -> str:
        """Words after the task; outcome is goal, miss or malformed."""
        cell = view.task.labels.cell
        if outcome == "malformed":
            ending = f"Invalid action: {complaint}. Expected <answer>row,column</answer>. Reward 0.\n"
        elif outcome == "goal":
            ending = (
                f"{self._last(view)}You ended on the target {cell(view.here)}: loss {view.loss:.4f}, reward "
                f"{1 - view.loss:.4f}.\n"
            )
        else:
            ending = f"{self._last(view)}You ended at {cell(view.here)}, not on the target {cell(view.task.goal)}: reward 0.\n"
        return f"{ending}{self.observed}{view.chart.text()}"

    def respond(self, to: Cell, labels: GridLabels, known: Mapping[Cell, int]) -> str:
        """A well-formed move."""
        return f"The cheapest route I see goes on to this cell. <answer>{labels.cell(to)}</answer>"

    def write(self, known: Mapping[Cell, int], labels: GridLabels) -> str:
        """The known map under its own heading, at most about 900 letters."""
        return f"{self.noted}{drawn_chart(dict(known), labels)}"

    def labels(self, messages: Sequence[Message]) -> GridLabels:
        """Names of rows and columns."""
        return _last_map(messages[-1].content, self.observed)[0]

    def standing(self, messages: Sequence[Message]) -> Standing:
        """From the sentences of every observation; warnings repeat a cell and are left out."""
        labels, stops = self.labels(messages), []
        for message in messages[1:]:
            if message.role is Role.USER and not message.content.startswith("Warning"):
                stops.append(_cell(message.content, "You are at", labels))
        left = re.search(r"this one included: (\d+)", messages[-1].content)
        assert left is not None, "the observation does not tell the moves left"
        return Standing(tuple(stops), _cell(messages[-1].content, "the target is", labels), int(left[1]))

    def in_context(self, messages: Sequence[Message]) -> dict[Cell, int]:
        """The first map under the heading of notes, which comes before all records."""
        return next((_map(m.content.partition(self.noted)[2]) for m in messages[:2] if self.noted in m.content), {})

    def seen(self, messages: Sequence[Message]) -> dict[Cell, int]:
        """Costs that the world has shown."""
        return _last_map(messages[-1].content, self.observed)[1]

    @staticmethod
    def _last(view: GridView) -> str:
        if not view.path:
            return ""
        cell, costs = view.task.labels.cell, view.task.costs
        entered = " ".join([f"{cell(at)} ({costs[at[0]][at[1]]})" for at in view.path])
        return f"Your last move entered, with costs: {entered}. Loss so far: {view.loss:.4f}.\n"

    def _reveal(self) -> str:
        radius = self.parameters.reveal_radius
        if radius == 0:
            return "Entering a cell shows its cost."
        near = "1 row and 1 column" if radius == 1 else f"{radius} rows and {radius} columns"
        return f"Entering a cell shows its cost and the costs of all cells at most {near} away."

    def _memory(self) -> str:
        if self.parameters.world_memory:
            return "What was shown stays on the observed map in later tasks."
        return "What was shown stays on the observed map until the task ends; the next one starts with an empty map."


def _map(text: str) -> dict[Cell, int]:
    try:
        return read_chart(text)[1]
    except ValueError:
        return {}


def _last_map(text: str, heading: str) -> tuple[GridLabels, dict[Cell, int]]:
    return read_chart(text.rpartition(heading)[2])


def _cell(text: str, before: str, labels: GridLabels) -> Cell:
    match = re.search(rf"{before} (\w+),(\w+)", text)
    cell = labels.find(match[1], match[2]) if match else None
    assert cell is not None, f"no cell after '{before}'"
    return cell


class CompactGrid(_GridWords):
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


GridWording = NaturalGrid | CompactGrid
"""How the grid is put into words, and read back by policies without a model."""
