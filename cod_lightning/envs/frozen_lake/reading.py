"""What was seen on a lake, read back from the text of a dialogue."""

from collections.abc import Sequence
from dataclasses import dataclass

from cod_lightning.envs.frozen_lake.belief import ALL, moved, told
from cod_lightning.envs.frozen_lake.lake import DIRECTIONS, Cell, distances_to, neighbour
from cod_lightning.envs.frozen_lake.view import LakeWording, Shore
from cod_lightning.types import Message, Role


@dataclass(frozen=True, slots=True)
class LakeSeen:
    """The dialogue of one task so far."""

    shore: Shore
    here: Cell
    moves: tuple[tuple[int, Cell, Cell], ...]
    """(code, from, to) of every answer that could be read."""
    turn: int
    """Turns used."""

    @classmethod
    def of(cls, messages: Sequence[Message], wording: LakeWording) -> "LakeSeen":
        """From system text, first observation, and then answers and observations in turn."""
        shore = wording.shore(messages[1].content)
        cells, codes = [shore.start], []
        for message in messages[2:]:
            if message.role is Role.USER:
                cells.append(wording.position(message.content))
            else:
                codes.append(wording.code_of(message.content))
        moves = tuple(move for move in zip(codes, cells, cells[1:], strict=False) if move[0])
        return cls(shore, cells[-1], moves, len(cells) - 1)

    def forward(self) -> list[str]:
        """Directions that come one move closer to the goal."""
        shore = self.shore
        distance = distances_to(shore.goal, shore.holes, shore.size)
        closer = distance.get(self.here, 0) - 1
        return [d for d in DIRECTIONS if distance.get(neighbour(self.here, d, shore.size)) == closer]

    def belief(self, prior: int = ALL) -> int:
        """Mappings of `prior` that the moves leave possible; where they leave none of them, of all."""
        seen = ALL
        for code, before, after in self.moves:
            seen &= moved(code, before, after, self.shore.size)
        return seen & prior or seen or ALL


def context_belief(wording: LakeWording, messages: Sequence[Message]) -> int:
    """Mappings that the context's facts leave possible; of facts that contradict each other the later one holds."""
    return told(wording.facts.complete(wording.facts.parse(messages[0].content)))
