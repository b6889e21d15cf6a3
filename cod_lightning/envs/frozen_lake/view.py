"""What can be seen of a lake, and what a wording does: show it, and read back what it showed."""

from abc import abstractmethod
from dataclasses import dataclass

from msgspec import Struct

from cod_lightning.envs.facts import FactTable
from cod_lightning.envs.frozen_lake.labels import FIXED
from cod_lightning.envs.frozen_lake.lake import Cell, Lake
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


class LakeWording(Unchanging, WorldWording):
    """How the lake is put into words: with `name_effects` the directions of moves, otherwise only positions."""

    facts: FactTable
    labels = FIXED

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

    @abstractmethod
    def shore(self, observation: str) -> Shore:
        """The map, read back from a task's first observation."""

    @abstractmethod
    def position(self, observation: str) -> Cell:
        """The own cell, read back from any observation."""

    def code_of(self, response: str) -> int:
        """The code that a response answers with; 0 if it has none."""
        return self.labels.code_of(response)[0]
