"""A lake as it can be seen, and two renderings that read back what they show: sentences, and fused words for tiny policies."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from msgspec import Struct

from cod_lightning.envs.base import Unchanging
from cod_lightning.envs.facts import FactTable
from cod_lightning.envs.frozen_lake.lake import DIRECTIONS, STEPS, Cell, Lake


class LastMove(Unchanging, Struct, frozen=True):
    """What the last action did."""

    code: int
    direction: str
    before: Cell
    after: Cell


class LakeView(Unchanging, Struct, frozen=True):
    """All that a rendering may show."""

    lake: Lake
    position: Cell
    turn: int
    """Turns used so far."""
    max_turns: int
    moves: tuple[LastMove, ...]


@dataclass(frozen=True, slots=True)
class Shore:
    """The map as the first observation shows it."""

    size: int
    holes: frozenset[Cell]
    goal: Cell
    start: Cell

    @classmethod
    def of(cls, lake: Lake) -> "Shore":
        """Of a lake."""
        return cls(lake.size, frozenset(lake.holes()), lake.find("G"), lake.find("S"))


class LakeFacts(FactTable):
    """Facts in words or sentences, also those that only the two cells of a move show, as in `2:(0,0)>(0,1)`."""

    def parse(self, text: str) -> dict[int, str]:
        """As `FactTable.parse`; a move that went anywhere becomes the latest statement about its code."""
        found = super().parse(text)
        took = rf"{self.noun} (\d) took you, from row (\d), column (\d) to row (\d), column (\d)"
        pattern = r"\b(\d):\((\d),(\d)\)>\((\d),(\d)\)" if self.compact else took
        for name, *cells in re.findall(pattern, text, flags=re.ASCII):
            code, (before_row, before_column, row, column) = int(name), map(int, cells)
            for direction, step in STEPS.items():
                if step == (row - before_row, column - before_column):
                    found.pop(code, None)
                    found[code] = direction
        return found


class CompactLake(Unchanging):
    """`O(0,1) G(2,2) @(1,1)`, then `3=up @(0,1)`, and at the end `goal 3=up`; answers are single words.

    Where effects are not named, a move is the word `3:(1,1)>(0,1)` instead.
    """

    facts = FactTable("Direction", DIRECTIONS, compact=True)

    def __init__(self, fixed_size: int | None = None, names_effects: bool = True, size_max: int = 8) -> None:
        self.fixed_size, self.names_effects, self.size_max = fixed_size, names_effects, size_max
        """Size of all lakes (None if it varies and is shown, as in `4x4 O(0,1) ...`); whether a move is shown by its direction;
        size of the largest lake."""
        if not names_effects:
            self.facts = LakeFacts("Direction", DIRECTIONS, compact=True)

    def rules(self, max_turns: int) -> str:
        return "lake"

    def observation(self, view: LakeView) -> str:
        here = _cell("@", view.position)
        if not view.moves:
            holes = [_cell("O", hole) for hole in view.lake.holes()]
            size = [] if self.fixed_size else [f"{view.lake.size}x{view.lake.size}"]
            return " ".join([*size, *holes, _cell("G", view.lake.find("G")), here])
        return f"{_effect(view.moves[-1], self.names_effects)} {here}"

    def feedback(self, outcome: str, view: LakeView, complaint: str) -> str:
        return " ".join([outcome, *dict.fromkeys(_effect(move, self.names_effects) for move in view.moves)])

    def respond(self, direction: str, code: int) -> str:
        return f"{direction} <answer>Direction_{code}</answer>"

    def shore(self, observation: str) -> Shore:
        shown = re.match(r"(\d)x\1 ", observation)
        size = self.fixed_size or int(shown[1] if shown else 8)
        holes, (goal, *_) = _cells("O", observation), _cells("G", observation)
        return Shore(size, frozenset(holes), goal, self.position(observation))

    def position(self, observation: str) -> Cell:
        return _cells("@", observation)[-1]

    def words(self) -> tuple[str, ...]:
        cells = [(r, c) for r in range(self.size_max) for c in range(self.size_max)]
        stays = [f"{code}=stay" for code in self.facts.codes]
        moves = [_move(code, cell, to) for code in self.facts.codes for cell in cells for to in _reached(cell, cells)]
        return (
            "lake",
            *(f"{n}x{n}" for n in range(3, self.size_max + 1) if not self.fixed_size),
            *(_cell(role, cell) for role in "OG@" for cell in cells),
            *self.facts.words(),
            *(stays if self.names_effects else moves),
            *(f"<answer>Direction_{code}</answer>" for code in self.facts.codes),
            *DIRECTIONS,
            *("goal", "hole", "late", "malformed"),
        )


class NaturalLake(Unchanging):
    """Full sentences and a drawn map, as a language model sees it. Facts as in the reference, sentences our own."""

    facts = LakeFacts("Direction", DIRECTIONS, compact=False, verb=" leads")

    def __init__(self, names_effects: bool = True, names_place: bool = False) -> None:
        self.names_effects, self.names_place = names_effects, names_place
        """Whether a move is shown by its direction; whether words say where the player is."""

    def rules(self, max_turns: int) -> str:
        """System text."""
        return (
            "You walk over a frozen lake to a goal.\n\n"
            "Map symbols: P is you, G the goal, _ safe ice, O a hole. If you stand in a hole you are shown as X, on the goal as "
            "√.\n\n"
            "Rules:\n"
            "- Stepping into a hole ends the task with reward 0; reaching the goal ends it with reward 1.\n"
            "- A step off the edge of the map leaves you where you are and still counts.\n"
            f"- You have {max_turns} steps, so look for a short and safe path.\n"
            "- There are four actions: Direction 1, Direction 2, Direction 3, Direction 4. Each is one of up, down, left and "
            "right, no two are the same, and which is which is hidden. Assume nothing about it: try, watch, and use hints if you "
            "are given any. The same assignment holds in related tasks, so what you find out may pay later.\n\n"
            "Answer with brief reasoning, then exactly one action in this form:\n<answer>Direction X</answer>"
        )

    def observation(self, view: LakeView) -> str:
        """What is seen before an action."""
        goal = view.lake.find("G")
        parts = [f"Step {view.turn + 1} of {view.max_turns}."]
        if view.moves:
            parts[0] += f" {self._move_text(view.moves[-1])}"
        parts.append(f"Map:\n{drawn(view)}")
        if self.names_place:
            parts.append(f"You are in {_place(view.position)}.")
        parts.append(f"The goal is at row {goal[0]}, column {goal[1]} (counted from 0). What is your next action?")
        return "\n".join(parts)

    def feedback(self, outcome: str, view: LakeView, complaint: str) -> str:
        """Words after the task; outcome is goal, hole, late or malformed."""
        used = f"{view.turn} of {view.max_turns} steps"
        ending = {
            "goal": f"You reached the goal with {used}.",
            "hole": f"You fell into a hole after {used}. Plan a safe path around holes before you step.",
            "late": f"You ran out of steps ({used}). Look for a shorter path.",
            "malformed": f"Your answer could not be read: {complaint}. Expected one <answer>Direction X</answer> with X from 1 to "
            "4. The task is over.",
        }[outcome]
        last = [self._move_text(view.moves[-1])] if view.moves and outcome != "malformed" else []
        return " ".join([ending, *last])

    def respond(self, direction: str, code: int) -> str:
        """A well-formed response that wants to go there and answers with that code."""
        return f"I want to go {direction}. <answer>Direction {code}</answer>"

    def compared(self, here: Cell, goal: Cell, ways: Sequence[str], wanted: str) -> str:
        """A player's thought: its own row beside the goal's with the way from one to the other, the columns, and what it wants.

        The two numbers stand side by side, since a policy that begins as a copier sees two words back.
        """
        row, column = (f"{own} {its} {way or 'same'}" for own, its, way in zip(here, goal, ways, strict=True))
        return f"I am in row {row}, column {column}. I want to go {wanted}"

    def shore(self, observation: str) -> Shore:
        """The map, read back from a task's first observation."""
        rows = self._rows(observation)
        goal = re.search(r"goal is at row (\d+), column (\d+)", observation)
        assert goal is not None, "the observation does not name the goal"
        holes = frozenset(_where(rows, "O"))
        return Shore(len(rows), holes, (int(goal[1]), int(goal[2])), self.position(observation))

    def position(self, observation: str) -> Cell:
        """The own cell, read back from any observation."""
        return _where(self._rows(observation), "P")[0]

    @staticmethod
    def _rows(observation: str) -> list[list[str]]:
        drawn = observation.partition("Map:\n")[2]
        return [line.split() for line in takewhile(lambda line: line.startswith(" "), drawn.splitlines())]

    def _move_text(self, move: LastMove) -> str:
        """One sentence about what an action did."""
        before, after = _place(move.before), _place(move.after)
        if move.before == move.after:
            return f"Direction {move.code} kept you at {before}; maybe that is the edge."
        verb = f"leads {move.direction}" if self.names_effects else "took you"
        return f"Direction {move.code} {verb}, from {before} to {after}."


def drawn(view: LakeView) -> str:
    """The map, the player on it."""
    symbol, on = {"F": "_", "S": "_", "H": "O", "G": "G"}, {"H": "X", "G": "√"}
    lines = []
    for r, row in enumerate(view.lake.rows):
        cells = [on.get(c, "P") if (r, i) == view.position else symbol[c] for i, c in enumerate(row)]
        lines.append("".join(f" {cell} \t" for cell in cells))
    return "\n".join(lines)


def _place(cell: Cell) -> str:
    return f"row {cell[0]}, column {cell[1]}"


def _cell(role: str, cell: Cell) -> str:
    return f"{role}({cell[0]},{cell[1]})"


def _cells(role: str, text: str) -> list[Cell]:
    return [(int(r), int(c)) for r, c in re.findall(rf"{role}\((\d),(\d)\)", text)]


def _where(rows: list[list[str]], symbol: str) -> list[Cell]:
    return [(r, c) for r, row in enumerate(rows) for c, cell in enumerate(row) if cell == symbol]


def _effect(move: LastMove, named: bool) -> str:
    if not named:
        return _move(move.code, move.before, move.after)
    return f"{move.code}={'stay' if move.before == move.after else move.direction}"


def _move(code: int, before: Cell, after: Cell) -> str:
    return f"{code}:({before[0]},{before[1]})>({after[0]},{after[1]})"


def _reached(cell: Cell, cells: list[Cell]) -> list[Cell]:
    """By one move: the neighbours, and the cell itself where the map ends."""
    return [to for to in cells if abs(to[0] - cell[0]) + abs(to[1] - cell[1]) <= 1]


LakeWording = NaturalLake | CompactLake
"""How the lake is put into words."""
