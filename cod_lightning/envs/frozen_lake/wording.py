"""A lake as it can be seen, and two renderings that read back what they show: sentences, and fused words for tiny policies."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from msgspec import Struct

from cod_lightning.envs.facts import FactTable
from cod_lightning.envs.frozen_lake.labels import FIXED, LakeFacts, LakeLabels
from cod_lightning.envs.frozen_lake.lake import DIRECTIONS, Cell, Lake
from cod_lightning.envs.task_world import WorldWording
from cod_lightning.envs.unchanging import Unchanging


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
    complaint: str = ""
    """Why the last answer could not be read, where that was only warned of."""


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


class _LakeWords(Unchanging, WorldWording):
    """What both renderings share."""

    facts: FactTable
    labels = FIXED

    def code_of(self, response: str) -> int:
        """The code that a response answers with; 0 if it has none."""
        return self.labels.code_of(response)[0]


class CompactLake(_LakeWords):
    """`O(0,1) G(2,2) @(1,1)`, then `3=up @(0,1)`, and at the end `goal 3=up`; answers are single words.

    Where effects are not named, a move is the word `3:(1,1)>(0,1)` instead.
    """

    facts = FactTable("Direction", DIRECTIONS, compact=True)

    def __init__(
        self, fixed_size: int | None = None, warns: bool = False, names_effects: bool = True, size_max: int = 8
    ) -> None:
        self.fixed_size, self.warns, self.names_effects, self.size_max = fixed_size, warns, names_effects, size_max
        """Size of all lakes (None if it varies and is shown, as in `4x4 O(0,1) ...`); whether there are warnings; whether a
        move is shown by its direction; size of the largest lake."""
        if not names_effects:
            self.facts = LakeFacts("Direction", DIRECTIONS, compact=True)

    def rules(self, max_turns: int) -> str:
        return "lake"

    def observation(self, view: LakeView, name_effects: bool) -> str:
        here = _cell("@", view.position)
        if view.complaint:
            return f"unread {here}"
        if not view.moves:
            holes = [_cell("O", hole) for hole in view.lake.holes()]
            size = [] if self.fixed_size else [f"{view.lake.size}x{view.lake.size}"]
            return " ".join([*size, *holes, _cell("G", view.lake.find("G")), here])
        return f"{_effect(view.moves[-1], name_effects)} {here}"

    def feedback(self, outcome: str, view: LakeView, name_effects: bool, complaint: str) -> str:
        return " ".join([outcome, *dict.fromkeys(_effect(move, name_effects) for move in view.moves)])

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
            *("goal", "hole", "late", "malformed", *["unread"][: self.warns]),
        )


class NaturalLake(_LakeWords):
    """Full sentences and a drawn map, as a language model sees it. Facts as in the reference, sentences our own."""

    facts = LakeFacts("Direction", DIRECTIONS, compact=False, verb=" leads")

    def __init__(self, labels: LakeLabels = FIXED, one_each: bool = False, names_place: bool = False) -> None:
        self.labels, self.one_each, self.names_place = labels, one_each, names_place
        """How actions and cells are called; whether every task has a mapping of its own; whether words say where the player is."""
        self.facts = replace(type(self).facts, noun=labels.noun, names=labels.names)

    def rules(self, max_turns: int) -> str:
        """System text."""
        called = self.labels
        shared = (
            "Every task has an assignment of its own."
            if self.one_each
            else "The same assignment holds in related tasks, so what you find out may pay later."
        )
        rules = (
            "Stepping into a hole ends the task with reward 0; reaching the goal ends it with reward 1.",
            "A step off the edge of the map leaves you where you are and still counts.",
            f"You have {max_turns} steps, so look for a short and safe path.",
            f"There are four actions: {called.listed}. Each is one of up, down, left and right, no two are the same, and which "
            f"is which is hidden. Assume nothing about it: try, watch, and use hints if you are given any. {shared}",
        )
        listed = "".join(f"- {rules[i]}\n" for i in called.order)
        return (
            "You walk over a frozen lake to a goal.\n\n"
            f"Map symbols: {called.player} is you, {called.goal} the goal, {called.ice} safe ice, {called.hole} a hole. If you "
            f"stand in a hole you are shown as {called.sunk}, on the goal as {called.arrived}.\n\n"
            f"Rules:\n{listed}\n"
            f"Answer with brief reasoning, then exactly one action in this form:\n<answer>{called.noun} X</answer>"
        )

    def observation(self, view: LakeView, name_effects: bool) -> str:
        """What is seen before an action."""
        goal = view.lake.find("G")
        parts = [f"Step {view.turn + 1} of {view.max_turns}."]
        if view.complaint:
            parts[0] += f" {self._unread(view.complaint)} That step is lost; a second such answer ends the task."
        elif view.moves:
            parts[0] += f" {self._move_text(view.moves[-1], name_effects)}"
        parts.append(f"Map:\n{self.drawn(view)}")
        if self.names_place:
            parts.append(f"You are in {_place(view.position)}.")
        parts.append(f"The goal is at row {goal[0]}, column {goal[1]} (counted from 0). What is your next action?")
        return "\n".join(parts)

    def feedback(self, outcome: str, view: LakeView, name_effects: bool, complaint: str) -> str:
        """Words after the task; outcome is goal, hole, late or malformed."""
        used = f"{view.turn} of {view.max_turns} steps"
        ending = {
            "goal": f"You reached the goal with {used}.",
            "hole": f"You fell into a hole after {used}. Plan a safe path around holes before you step.",
            "late": f"You ran out of steps ({used}). Look for a shorter path.",
            "malformed": f"{self._unread(complaint)} The task is over.",
        }[outcome]
        if view.complaint and outcome == "late":
            return f"{self._unread(view.complaint)}\n{ending}"
        last = [self._move_text(view.moves[-1], name_effects)] if view.moves and outcome != "malformed" else []
        return " ".join([ending, *last])

    def respond(self, direction: str, code: int) -> str:
        """A well-formed response that wants to go there and answers with that code."""
        return f"I want to go {direction}. <answer>{self.labels.label(code)}</answer>"

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
        holes = frozenset(_where(rows, self.labels.hole))
        return Shore(len(rows), holes, (int(goal[1]), int(goal[2])), self.position(observation))

    def position(self, observation: str) -> Cell:
        """The own cell, read back from any observation."""
        return _where(self._rows(observation), self.labels.player)[0]

    def drawn(self, view: LakeView) -> str:
        """The map, the player on it."""
        called = self.labels
        symbol = {"F": called.ice, "S": called.ice, "H": called.hole, "G": called.goal}
        on = {"H": called.sunk, "G": called.arrived}
        lines = []
        for r, row in enumerate(view.lake.rows):
            cells = [on.get(c, called.player) if (r, i) == view.position else symbol[c] for i, c in enumerate(row)]
            lines.append("".join(f" {cell} \t" for cell in cells))
        return "\n".join(lines)

    @staticmethod
    def _rows(observation: str) -> list[list[str]]:
        drawn = observation.partition("Map:\n")[2]
        return [line.split() for line in takewhile(lambda line: line.startswith(" "), drawn.splitlines())]

    def _unread(self, complaint: str) -> str:
        form = f"<answer>{self.labels.noun} X</answer> with X from {self.labels.span}"
        return f"Your answer could not be read: {complaint}. Expected one {form}."

    def _move_text(self, move: LastMove, name_effects: bool) -> str:
        """One sentence about what an action did."""
        action, before, after = self.labels.label(move.code), _place(move.before), _place(move.after)
        if move.before == move.after:
            return f"{action} kept you at {before}; maybe that is the edge."
        verb = f"leads {move.direction}" if name_effects else "took you"
        return f"{action} {verb}, from {before} to {after}."


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
"""How the lake is put into words: with `name_effects` the directions of moves, otherwise only positions."""
