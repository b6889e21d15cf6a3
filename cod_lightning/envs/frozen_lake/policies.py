"""Play on the lake: Bayes-optimal for references, simpler for the teacher."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.answers import code_of
from cod_lightning.envs.base import TextPolicy
from cod_lightning.envs.facts import FactTable
from cod_lightning.envs.frozen_lake.lake import DIRECTIONS, Cell, Lake, LakeTask, distances_to, neighbour
from cod_lightning.envs.frozen_lake.planner import ALL, belief_in, belief_of, facts_of, meaning, moved, plan_of
from cod_lightning.envs.frozen_lake.wording import LakeWording, NaturalLake, Shore
from cod_lightning.envs.players import TablePlay
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
                codes.append(code_of(message.content, "Direction", 4)[0])
        moves = tuple(move for move in zip(codes, cells, cells[1:], strict=False) if move[0])
        return cls(shore, cells[-1], moves, len(cells) - 1)

    def forward(self) -> list[str]:
        """Directions that come one move closer to the goal; all where there is none."""
        shore = self.shore
        distance = distances_to(shore.goal, shore.holes, shore.size)
        closer = distance.get(self.here, 0) - 1
        found = [d for d in DIRECTIONS if distance.get(neighbour(self.here, d, shore.size)) == closer]
        return found or list(DIRECTIONS)

    def belief(self, prior: int = ALL) -> int:
        """Mappings of `prior` that the moves leave possible; where they leave none of them, of all."""
        seen = ALL
        for code, before, after in self.moves:
            seen &= moved(code, before, after, self.shore.size)
        return seen & prior or seen or ALL


@dataclass(frozen=True, kw_only=True)
class LakePlayer:
    """Task-wise Bayes-optimal play: the code of the highest expected reward of this task; ties are broken at random.

    Where the task has far more turns than the lake can take, the plan ends before them, and the heuristic `stepped` goes on.
    """

    wording: LakeWording
    max_turns: int
    length_penalty: float

    def play(self, seen: LakeSeen, belief: int, rng: random.Random) -> str:
        """The next response, with these mappings possible."""
        plan = plan_of(seen.shore, self.max_turns, self.length_penalty)
        if seen.turn >= plan.turns:
            return self.wording.respond(*stepped(self.wording, seen.forward(), facts_of(belief), rng))
        code = rng.choice(plan.best_codes(seen.here, belief, seen.turn))
        return self.wording.respond(meaning(belief, code) or rng.choice(seen.forward()), code)


@dataclass(frozen=True)
class ScriptedLakePolicy(TextPolicy):
    """Perfect memory and task-wise Bayes-optimal play from the context's facts and from this task's moves, bumps too.

    A context that the moves contradict is dropped. Notes hold facts only: what bumps showed lasts for the task alone, which
    costs about 0.015 of reward in the second task of an easy pack.
    """

    player: LakePlayer

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        wording = self.player.wording
        seen = LakeSeen.of(messages, wording)
        table = wording.facts
        prior = belief_of(table.complete(table.parse(messages[0].content)))
        return self.player.play(seen, seen.belief(prior), rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        """What was known and what was seen; what was known is dropped where they contradict each other."""
        table = self.player.wording.facts
        return table.write(table.complete(statements(table, "\n".join(message.content for message in messages))))


@dataclass(frozen=True)
class LakeOracle(TextPolicy):
    """Knows each lake's mapping. Where a pack has the same lake with several mappings it plays Bayes-optimally among them."""

    player: LakePlayer
    beliefs: Mapping[Shore, int]
    """Of each lake of the pack, the mappings that it has there."""
    shared: Mapping[int, str]
    """Facts that hold in all tasks."""

    @classmethod
    def of(cls, player: LakePlayer, tasks: Iterable[LakeTask]) -> "LakeOracle":
        """Of the tasks of a pack."""
        everywhere, beliefs = 0, dict[Shore, int]()
        for task in tasks:
            shore, belief = Shore.of(Lake(task.rows)), belief_in([task.mapping])
            everywhere, beliefs[shore] = everywhere | belief, beliefs.get(shore, 0) | belief
        return cls(player, beliefs, facts_of(everywhere))

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        wording = self.player.wording
        seen = LakeSeen.of(messages, wording)
        belief = seen.belief(self.beliefs.get(seen.shore, belief_of(self.shared)))
        if belief.bit_count() == 1:
            return wording.respond(*stepped(wording, seen.forward(), facts_of(belief), rng))
        return self.player.play(seen, belief, rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.player.wording.facts.write(self.shared)


class LakePlay(TablePlay):
    """A shortest path with a known code if there is one, else an unknown code.

    Where players quote in sentences it wants what map and cells alone decide, so that nothing has to be looked up before: the way
    that leads forward along the column if there is one, else along the row, else around holes.
    """

    def answer(self, messages: Sequence[Message], known: Mapping[int, str], rng: random.Random) -> str:
        seen = LakeSeen.of(messages, self.wording)
        forward, question = seen.forward(), ""
        if self.dials.quotes and isinstance(self.wording, NaturalLake):
            ways = towards(seen.here, seen.shore.goal)
            forward = [way for way in ways if way in forward][:1] or forward[:1]
            question = self.wording.compared(seen.here, seen.shore.goal, ways, forward[0])
        direction, code = stepped(self.wording, forward, known, rng)
        return self.respond(direction, code, known, question)


def statements(table: FactTable, text: str) -> dict[int, str]:
    """Facts stated in the text, piece by piece; a piece that contradicts earlier ones clears them all.

    A context that says one thing while observations show another is out of date.

    >>> table = FactTable("Lever", ("red", "green", "blue", "gold"), compact=True)
    >>> statements(table, "1=red 2=green 1=blue 3=gold"), statements(table, "1=red 1=red 2=red")
    ({1: 'blue', 3: 'gold'}, {2: 'red'})
    """
    known: dict[int, str] = {}
    for piece in text.split() if table.compact else text.splitlines():
        for code, value in table.parse(piece).items():
            if known.get(code, value) != value or any(v == value and c != code for c, v in known.items()):
                known = {}
            known[code] = value
    return known


def towards(here: Cell, goal: Cell) -> tuple[str, str]:
    """The directions to the goal's row and to its column; empty where it is the same.

    >>> towards((2, 1), (0, 1)), towards((0, 0), (1, 2))
    (('up', ''), ('down', 'right'))
    """
    (row, column), (goal_row, goal_column) = here, goal
    vertical = "" if row == goal_row else "down" if row < goal_row else "up"
    return vertical, "" if column == goal_column else "right" if column < goal_column else "left"


def stepped(
    wording: LakeWording, wanted: Sequence[str], known: Mapping[int, str], rng: random.Random
) -> tuple[str, int]:
    """One of the wanted directions and its known code if there is one, else a code that is not known."""
    by_value = {value: code for code, value in known.items()}
    for direction in rng.sample(wanted, len(wanted)):
        if direction in by_value:
            return direction, by_value[direction]
    unknown = [code for code in wording.facts.codes if code not in known] or list(wording.facts.codes)
    return rng.choice(wanted), rng.choice(unknown)
