"""Two renderings of one lake: sentences for language models, fused words for tiny policies."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass

from cod_lightning.envs.facts import FactTable
from cod_lightning.envs.frozen_lake.lake import DIRECTIONS, STEPS, Cell, Lake


@dataclass(frozen=True, slots=True)
class LastMove:
    """What the last action did."""

    code: int
    direction: str
    before: Cell
    after: Cell


@dataclass(frozen=True, slots=True)
class LakeView:
    """All that a rendering may show."""

    lake: Lake
    position: Cell
    turn: int
    """Turns used so far."""
    max_turns: int
    moves: tuple[LastMove, ...]


class LakeWording(ABC):
    """How the lake is put into words. `name_effects` tells directions; otherwise only positions are told."""

    facts: FactTable

    @abstractmethod
    def rules(self, max_turns: int) -> str:
        """System text."""

    @abstractmethod
    def observation(self, view: LakeView, name_effects: bool) -> str:
        """What is seen before an action."""

    @abstractmethod
    def feedback(self, outcome: str, view: LakeView, name_effects: bool, complaint: str) -> str:
        """Words after the task; outcome is goal, hole, late or malformed."""

    @abstractmethod
    def respond(self, direction: str, code: int) -> str:
        """A well-formed response that wants to go there and answers with that code."""

    def words(self, size: int) -> tuple[str, ...]:
        """Closed vocabulary, if there is one."""
        del size
        return ()


class CompactLake(LakeWording):
    """`O(0,1) G(2,2) @(0,0)`, then `3=up @(0,1)`, and at the end `goal 3=up`; answers are single words."""

    facts = FactTable("Direction", DIRECTIONS, compact=True)

    def __init__(self, fixed_size: int | None = None) -> None:
        self.fixed_size = fixed_size
        """Size of all lakes; None if it varies and is shown, as in `4x4 O(0,1) ...`."""

    def rules(self, max_turns: int) -> str:
        """One word."""
        del max_turns
        return "lake"

    def observation(self, view: LakeView, name_effects: bool) -> str:
        """At first the whole lake; later the last effect and the own cell."""
        here = _cell("@", view.position)
        if not view.moves:
            holes = [_cell("O", hole) for hole in view.lake.holes()]
            size = [] if self.fixed_size else [f"{view.lake.size}x{view.lake.size}"]
            return " ".join([*size, *holes, _cell("G", view.lake.find("G")), here])
        return f"{_effect(view.moves[-1])} {here}" if name_effects else here

    def feedback(self, outcome: str, view: LakeView, name_effects: bool, complaint: str) -> str:
        """The outcome, then every different effect in order of appearance (or the cells walked)."""
        del complaint
        seen = [_effect(m) if name_effects else _cell("@", m.after) for m in view.moves]
        return " ".join([outcome, *(dict.fromkeys(seen) if name_effects else seen)])

    def respond(self, direction: str, code: int) -> str:
        """A thought, then the answer."""
        return f"{direction} <answer>Direction_{code}</answer>"

    def words(self, size: int) -> tuple[str, ...]:
        """Cells in their three roles, effects and facts, answers, thoughts, outcomes."""
        cells = [(r, c) for r in range(size) for c in range(size)]
        return (
            "lake",
            *(f"{n}x{n}" for n in range(3, size + 1) if not self.fixed_size),
            *(_cell(role, cell) for role in "OG@" for cell in cells),
            *self.facts.words(),
            *(f"{code}=stay" for code in self.facts.codes),
            *(f"<answer>Direction_{code}</answer>" for code in self.facts.codes),
            *DIRECTIONS,
            *("goal", "hole", "late", "malformed"),
        )


class NaturalLakeFacts(FactTable):
    """Facts in sentences, also those that only the two cells of a move tell."""

    def parse(self, text: str) -> dict[int, str]:
        """As `FactTable.parse`; a move between cells overrules what was said."""
        found = super().parse(text)
        for code, *cells in re.findall(_TOOK, text, flags=re.ASCII):
            before_row, before_column, row, column = map(int, cells)
            for direction, step in STEPS.items():
                if step == (row - before_row, column - before_column):
                    found.pop(int(code), None)
                    found[int(code)] = direction
        return found


_TOOK = r"Direction ([1-4]) took you, from row (\d), column (\d) to row (\d), column (\d)"


class NaturalLake(LakeWording):
    """Full sentences and a drawn map, as a language model sees it. Facts as in the reference, sentences our own."""

    facts = NaturalLakeFacts("Direction", DIRECTIONS, compact=False)

    def rules(self, max_turns: int) -> str:
        """The game, what is hidden, and how to answer."""
        return (
            "You walk over a frozen lake to a goal.\n\n"
            "Map symbols: P is you, G the goal, _ safe ice, O a hole. If you stand in a hole you are shown as X, on the goal "
            "as √.\n\n"
            "Rules:\n"
            "- Stepping into a hole ends the task with reward 0; reaching the goal ends it with reward 1.\n"
            "- A step off the edge of the map leaves you where you are and still counts.\n"
            f"- You have {max_turns} steps, so look for a short and safe path.\n"
            "- There are four actions: Direction 1, Direction 2, Direction 3, Direction 4. Each is one of up, down, left and "
            "right, no two are the same, and which is which is hidden. Assume nothing about it: try, watch, and use hints if "
            "you are given any. The same assignment holds in related tasks, so what you find out may pay later.\n\n"
            "Answer with brief reasoning, then exactly one action in this form:\n<answer>Direction X</answer>"
        )

    def observation(self, view: LakeView, name_effects: bool) -> str:
        """Step, effect of the last action, map, goal."""
        goal = view.lake.find("G")
        parts = [f"Step {view.turn + 1} of {view.max_turns}."]
        if view.moves:
            parts.append(_told(view.moves[-1], name_effects))
        parts.append(f"Map:\n{self.drawn(view)}")
        parts.append(f"The goal is at row {goal[0]}, column {goal[1]} (counted from 0). What is your next action?")
        return "\n".join(parts)

    def feedback(self, outcome: str, view: LakeView, name_effects: bool, complaint: str) -> str:
        """The last effect, and how the task ended."""
        used = f"{view.turn} of {view.max_turns} steps"
        ending = {
            "goal": f"You reached the goal with {used}.",
            "hole": f"You fell into a hole after {used}. Plan a safe path around holes before you step.",
            "late": f"You ran out of steps ({used}). Look for a shorter path.",
            "malformed": f"Your answer could not be read: {complaint}. Expected one <answer>Direction X</answer> with X from 1 "
            "to 4. The task is over.",
        }[outcome]
        last = [_told(view.moves[-1], name_effects)] if view.moves and outcome != "malformed" else []
        return "\n".join([*last, ending])

    def respond(self, direction: str, code: int) -> str:
        """One sentence, then the answer."""
        return f"I want to go {direction}. <answer>Direction {code}</answer>"

    def drawn(self, view: LakeView) -> str:
        """The map, the player on it."""
        symbol = {"F": "_", "S": "_", "H": "O", "G": "G"}
        on = {"H": "X", "G": "√"}
        lines = []
        for r, row in enumerate(view.lake.rows):
            cells = [on.get(c, "P") if (r, i) == view.position else symbol[c] for i, c in enumerate(row)]
            lines.append("".join(f" {cell} \t" for cell in cells))
        return "\n".join(lines)


def _cell(role: str, cell: Cell) -> str:
    return f"{role}({cell[0]},{cell[1]})"


def _effect(move: LastMove) -> str:
    return f"{move.code}={'stay' if move.before == move.after else move.direction}"


def _told(move: LastMove, name_effects: bool) -> str:
    """One sentence about what an action did."""
    if move.before == move.after:
        return (
            f"Direction {move.code} kept you at row {move.before[0]}, column {move.before[1]}; maybe that is the edge."
        )
    moved = f"Direction {move.code} moved you {move.direction}" if name_effects else f"Direction {move.code} took you"
    return (
        f"{moved}, from row {move.before[0]}, column {move.before[1]} to row {move.after[0]}, column {move.after[1]}."
    )
