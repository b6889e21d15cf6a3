"""What a lake's actions, map symbols and rules look like in sentences: the paper's, or drawn for each pack."""

import random
import re
from dataclasses import dataclass

from cod_lightning.envs.code_labels import CodeLabels, drawn_names
from cod_lightning.envs.facts import FactTable
from cod_lightning.envs.frozen_lake.lake import STEPS

NOUNS = ("Direction", "Move", "Action", "Command", "Signal", "Key")
NUM_RULES = 4


@dataclass(frozen=True, slots=True)
class LakeLabels(CodeLabels):
    """Noun and names of the actions, symbols of the map, order of the rules. Plain values, so that a task can hold them."""

    noun: str = "Direction"
    player: str = "P"
    goal: str = "G"
    ice: str = "_"
    hole: str = "O"
    sunk: str = "X"
    """The player in a hole."""
    arrived: str = "√"
    """The player on the goal."""
    order: tuple[int, ...] = tuple(range(NUM_RULES))
    """Of the rules in the system text."""

    @classmethod
    def draw(cls, seed: int) -> "LakeLabels":
        """Labels of a pack."""
        rng = random.Random(seed)
        noun, names = drawn_names(rng, NOUNS)
        player, goal, ice, hole, sunk, arrived = map(rng.choice, ("P@&A", "G*$T", "_.-~", "O#0%", "X!x", "√+^"))
        order = tuple(rng.sample(range(NUM_RULES), NUM_RULES))
        return cls(noun, names, player, goal, ice, hole, sunk, arrived, order)


FIXED = LakeLabels()
"""The paper's."""


class LakeFacts(FactTable):
    """Facts in words or sentences, also those that only the two cells of a move show, as in `2:(0,0)>(0,1)`."""

    def parse(self, text: str) -> dict[int, str]:
        """As `FactTable.parse`; a move that went anywhere becomes the latest statement about its code."""
        found = super().parse(text)
        took = rf"{self.noun} ({self.alternatives}) took you, from row (\d), column (\d) to row (\d), column (\d)"
        pattern = r"\b(\d):\((\d),(\d)\)>\((\d),(\d)\)" if self.compact else took
        for name, *cells in re.findall(pattern, text, flags=re.ASCII):
            code = int(name) if self.compact else self.names.index(name) + 1
            before_row, before_column, row, column = map(int, cells)
            for direction, step in STEPS.items():
                if step == (row - before_row, column - before_column):
                    found.pop(code, None)
                    found[code] = direction
        return found
