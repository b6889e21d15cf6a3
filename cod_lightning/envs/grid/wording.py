"""Two renderings of the grid: sentences and a map for language models, fused words for tiny policies."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.base import Unchanging
from cod_lightning.envs.facts import UNKNOWN
from cod_lightning.envs.grid.chart import drawn_chart, read_chart
from cod_lightning.envs.grid.draws import GridTask, GridView
from cod_lightning.envs.grid.field import LANE_COSTS, TOP, Cell, units
from cod_lightning.envs.grid.parameters import GridParameters
from cod_lightning.types import Message, Role


@dataclass(frozen=True, slots=True)
class Standing:
    """A task as read back from a dialogue."""

    stops: tuple[Cell, ...]
    """Start, and where each move ended."""
    goal: Cell
    left: int
    """Moves left."""


class _GridWords(Unchanging):
    """What both renderings share."""

    def __init__(self, parameters: GridParameters) -> None:
        self.parameters = parameters


class NaturalGrid(_GridWords):
    """Full sentences and the observed map. Facts as in the reference, sentences our own."""

    observed, noted = "Observed map:\n", "Known costs:\n"

    def rules(self, task: GridTask) -> str:
        """System text; the same for all tasks of a pack."""
        last = len(task.costs) - 1
        rules = [
            "A move takes you to any other cell of your row or your column. You enter every cell that you cross and the one "
            "where you stop, but not the one that you leave.",
            "A task names a target and an exact number of moves. Only where the last move ends counts; passing the target "
            "earlier does not end the task. With one move left you must stand in the target's row or column, not on the target.",
            f"{self._reveal()} {self._memory()}",
            "The loss is the mean cost of all entered cells divided by 100; a cell entered twice counts twice. Because it is a "
            "mean, a long way over cheap cells can be better than a short one. The reward is 1 - loss if you end on the "
            "target, else 0.",
            "An answer that cannot be read, or a move off the grid, to your own cell or out of line, ends the task with reward 0.",
            "Unseen cells may be cheap. Over many tasks it pays to have seen different parts of the grid.",
        ]
        listed = "\n".join(f"- {rule}" for rule in rules)
        return (
            f"You move over a square grid whose cells have hidden costs, whole numbers from 0 to {TOP}. The costs are the same in "
            "related tasks, so what you find out may pay later.\n\n"
            f"Rows are named 0 to {last} from the top, columns 0 to {last} from the left; a cell is written "
            f"row,column.\n\nRules:\n{listed}\n\n"
            "Answer with brief reasoning, then exactly one cell in this form:\n<answer>row,column</answer>"
        )

    def observation(self, view: GridView) -> str:
        """What is seen before a move."""
        task = view.task
        return (
            f"Move {view.done + 1} of {task.rounds}.\n{self._last(view)}"
            f"You are at {cell_text(view.here)}; the target is {cell_text(task.goal)}.\n"
            f"{self.observed}{view.chart.text()}\n"
            f"Moves left, this one included: {task.rounds - view.done}; the last must end on the target. Which cell of your row or "
            "column do you move to?"
        )

    def feedback(self, outcome: str, view: GridView, complaint: str) -> str:
        """Words after the task; outcome is goal, miss or malformed."""
        here = cell_text(view.here)
        if outcome == "malformed":
            ending = f"Invalid action: {complaint}. Expected <answer>row,column</answer>. Reward 0.\n"
        elif outcome == "goal":
            ending = (
                f"{self._last(view)}You ended on the target {here}: loss {view.loss:.4f}, reward {1 - view.loss:.4f}.\n"
            )
        else:
            ending = (
                f"{self._last(view)}You ended at {here}, not on the target {cell_text(view.task.goal)}: reward 0.\n"
            )
        return f"{ending}{self.observed}{view.chart.text()}"

    def respond(self, to: Cell, known: Mapping[Cell, int]) -> str:
        """A well-formed move."""
        return f"The cheapest route I see goes on to this cell. <answer>{cell_text(to)}</answer>"

    def write(self, known: Mapping[Cell, int], side: int) -> str:
        """The known map under its own heading, at most about 900 letters."""
        return f"{self.noted}{drawn_chart(dict(known), side)}"

    def side_in(self, messages: Sequence[Message]) -> int:
        """The side of the map."""
        return read_chart(messages[-1].content.rpartition(self.observed)[2])[0]

    def standing(self, messages: Sequence[Message]) -> Standing:
        """From the sentences of every observation."""
        stops = [_cell(m.content, "You are at") for m in messages[1:] if m.role is Role.USER]
        left = re.search(r"this one included: (\d+)", messages[-1].content)
        assert left is not None, "the observation does not tell the moves left"
        return Standing(tuple(stops), _cell(messages[-1].content, "the target is"), int(left[1]))

    def in_context(self, messages: Sequence[Message]) -> dict[Cell, int]:
        """The first map under the heading of notes, which comes before all records."""
        return next((_map(m.content.partition(self.noted)[2]) for m in messages[:2] if self.noted in m.content), {})

    def seen(self, messages: Sequence[Message]) -> dict[Cell, int]:
        """Costs that the world has shown."""
        return read_chart(messages[-1].content.rpartition(self.observed)[2])[1]

    @staticmethod
    def _last(view: GridView) -> str:
        if not view.path:
            return ""
        entered = " ".join([f"{cell_text(at)} ({view.task.costs[at[0]][at[1]]})" for at in view.path])
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


def _cell(text: str, before: str) -> Cell:
    match = re.search(rf"{before} (\d+),(\d+)", text)
    assert match is not None, f"no cell after '{before}'"
    return int(match[1]), int(match[2])


def cell_text(cell: Cell) -> str:
    """As it is shown and answered.

    >>> cell_text((0, 2))
    '0,2'
    """
    return f"{cell[0]},{cell[1]}"


class CompactGrid(_GridWords):
    """A fact is `row2=50`, since all cells of a row cost the same; answers are single words.

    All grids of such a world have one side, `parameters.side_max`.
    """

    def __init__(self, parameters: GridParameters) -> None:
        super().__init__(parameters)
        self.side = parameters.side_max
        self.units = units(self.side, True)

    def rules(self, task: GridTask) -> str:
        return "grid"

    def observation(self, view: GridView) -> str:
        left, here, known = f"moves={view.task.rounds - view.done}", _place("at", view.here), view.chart.known()
        if view.path:
            rows, columns = view.shown
            near = (unit for unit in self.units if any(row in rows and column in columns for row, column in unit))
            return " ".join([*(self._fact(unit, known) for unit in near), here, left])
        return " ".join([*self._facts(known), left, here, _place("to", view.task.goal)])

    def feedback(self, outcome: str, view: GridView, complaint: str) -> str:
        result = {
            "goal": [f"loss={int(10 * view.loss)}"],
            "miss": [_place("at", view.here), _place("to", view.task.goal)],
            "malformed": [],
        }[outcome]
        return " ".join([outcome, *result, *self._facts(view.chart.known())])

    def respond(self, to: Cell, known: Mapping[Cell, int]) -> str:
        return f"{self._fact(self.units[to[0]], known)} <answer>{cell_text(to)}</answer>"

    def write(self, known: Mapping[Cell, int], side: int) -> str:
        return " ".join(self._fact(unit, known) for unit in self.units)

    def side_in(self, messages: Sequence[Message]) -> int:
        return self.side

    def standing(self, messages: Sequence[Message]) -> Standing:
        """From the words of every observation."""
        shown = [m.content for m in messages[1:] if m.role is Role.USER]
        stops = [_places("at", text)[0] for text in shown]
        left = re.search(r"moves=(\d+)", shown[-1])
        assert left is not None, "the observation does not tell the moves left"
        return Standing(tuple(stops), _places("to", shown[0])[0], int(left[1]))

    def in_context(self, messages: Sequence[Message]) -> dict[Cell, int]:
        return self._read(messages[0].content)

    def seen(self, messages: Sequence[Message]) -> dict[Cell, int]:
        return self._read(" ".join(m.content for m in messages[1:] if m.role is Role.USER))

    def words(self) -> tuple[str, ...]:
        cells = [(r, c) for r in range(self.side) for c in range(self.side)]
        costs = (*map(str, LANE_COSTS), UNKNOWN)
        return (
            "grid",
            *(f"moves={left}" for left in range(1, self.parameters.rounds_max + 1)),
            *(_place(role, cell) for role in ("at", "to") for cell in cells),
            *(f"row{row}={cost}" for row in range(self.side) for cost in costs),
            *(f"<answer>{cell_text(cell)}</answer>" for cell in cells),
            *(f"loss={tenths}" for tenths in range(TOP // 10 + 1)),
            *("goal", "miss", "malformed"),
        )

    def _fact(self, unit: Sequence[Cell], known: Mapping[Cell, int]) -> str:
        return f"row{unit[0][0]}={next((known[cell] for cell in unit if cell in known), UNKNOWN)}"

    def _facts(self, known: Mapping[Cell, int]) -> list[str]:
        return [self._fact(unit, known) for unit in self.units if any(cell in known for cell in unit)]

    def _read(self, text: str) -> dict[Cell, int]:
        known: dict[Cell, int] = {}
        for row, cost in re.findall(r"\brow(\d)=(\d+)", text, flags=re.ASCII):
            known.update(dict.fromkeys([(int(row), c) for c in range(self.side)], int(cost)))
        return known


def _place(role: str, cell: Cell) -> str:
    return f"{role}({cell[0]},{cell[1]})"


def _places(role: str, text: str) -> list[Cell]:
    return [(int(r), int(c)) for r, c in re.findall(rf"{role}\((\d),(\d)\)", text)]


GridWording = NaturalGrid | CompactGrid
"""How the grid is put into words, and read back by policies without a model."""
