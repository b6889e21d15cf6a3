"""Who plays the lake without a model: at random, with perfect memory, or as a teacher that knows the mapping."""

import random
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cod_lightning.envs.base import Demonstrator, TextPolicy
from cod_lightning.envs.facts import TeacherDials, demonstrated_context, known_facts, noisy_facts, recorded_facts
from cod_lightning.envs.frozen_lake.lake import DIRECTIONS, OPPOSITE, STEPS, Cell, distances_to
from cod_lightning.envs.frozen_lake.wording import CompactLake, LakeWording
from cod_lightning.types import Message


@dataclass(frozen=True)
class RandomLakePolicy(TextPolicy):
    """Any of the four actions; notes nothing."""

    wording: LakeWording

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        """A legal answer."""
        return self.wording.respond(rng.choice(DIRECTIONS), rng.choice(self.wording.facts.codes))

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Everything unknown."""
        return self.wording.facts.write({})


@dataclass(frozen=True)
class ScriptedLakePolicy(TextPolicy):
    """Perfect memory and task-wise sensible play: walks a shortest safe path, tries unknown codes where it must.

    Before a try it steps aside where that is known to be possible and fewer holes lie around.
    """

    wording: LakeWording

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        """The next step, with what the context says and what was seen in this task."""
        known = known_facts(self.wording.facts, messages, trust_context=True)
        return step(self.wording, messages, known, rng, cautious=True)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        """What was known, overruled by what was seen."""
        return self.wording.facts.write(recorded_facts(self.wording.facts, messages))


@dataclass(frozen=True)
class LakeOracle(TextPolicy):
    """Knows the mapping."""

    wording: LakeWording
    truth: Mapping[int, str]

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        """A step of a shortest path."""
        return step(self.wording, messages, self.truth, rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        """The truth."""
        return self.wording.facts.write(self.truth)


@dataclass(frozen=True)
class LakeTeacher(Demonstrator):
    """Shows the protocol: plays like the scripted policy, trusts the context mostly, and notes only part of what it saw."""

    wording: LakeWording
    truth: Mapping[int, str]
    dials: TeacherDials

    def context(self, rng: random.Random) -> str:
        """True in part, junk, or none."""
        return demonstrated_context(self.wording.facts, self.truth, self.dials, rng)

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        """The next step."""
        trusting = rng.random() < self.dials.follow
        return step(self.wording, messages, known_facts(self.wording.facts, messages, trust_context=trusting), rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Each entry as the record has it with probability `note_accuracy`, else anything."""
        table = self.wording.facts
        return table.write(noisy_facts(table, recorded_facts(table, messages), self.dials.note_accuracy, rng))


def step(
    wording: LakeWording,
    messages: Sequence[Message],
    known: Mapping[int, str],
    rng: random.Random,
    *,
    cautious: bool = False,
) -> str:
    """Go along a shortest path with a known code if there is one, else try an unknown code (perhaps elsewhere)."""
    lake = _Seen.of(messages, wording)
    wanted = lake.forward() or list(DIRECTIONS)
    by_value = {value: code for code, value in known.items()}
    for direction in rng.sample(wanted, len(wanted)):
        if direction in by_value:
            return wording.respond(direction, by_value[direction])
    if cautious and (aside := lake.aside(by_value)):
        return wording.respond(aside, by_value[aside])
    unknown = [code for code in wording.facts.codes if code not in known] or list(wording.facts.codes)
    return wording.respond(rng.choice(wanted), rng.choice(unknown))


@dataclass(frozen=True)
class _Seen:
    """The lake as read back from a dialogue."""

    size: int
    holes: frozenset[Cell]
    goal: Cell
    here: Cell

    @classmethod
    def of(cls, messages: Sequence[Message], wording: LakeWording) -> "_Seen":
        first, last = messages[1].content, messages[-1].content
        if isinstance(wording, CompactLake):
            holes, goal = _cells("O", first), _cells("G", first)[0]
            here = _cells("@", last)[-1]
            shown = re.match(r"(\d)x\1 ", first)
            size = wording.fixed_size or int(shown[1] if shown else 8)
            return cls(size, frozenset(holes), goal, here)
        rows = [line.split() for line in first.partition("Map:\n")[2].partition("\nThe goal")[0].splitlines()]
        now = [line.split() for line in last.partition("Map:\n")[2].partition("\nThe goal")[0].splitlines()]
        goal = re.search(r"goal is at row (\d+), column (\d+)", first)
        assert goal is not None, "the observation does not name the goal"
        return cls(len(rows), frozenset(_where(rows, "O")), (int(goal[1]), int(goal[2])), next(iter(_where(now, "P"))))

    def neighbour(self, direction: str) -> Cell:
        down, right = STEPS[direction]
        row, column = self.here[0] + down, self.here[1] + right
        inside = 0 <= row < self.size and 0 <= column < self.size
        return (row, column) if inside else self.here

    def forward(self) -> list[str]:
        """Directions that come one move closer to the goal."""
        distance = distances_to(self.goal, self.holes, self.size)
        closer = distance.get(self.here, 0) - 1
        return [d for d in DIRECTIONS if distance.get(self.neighbour(d)) == closer]

    def risk(self, known: Collection[str]) -> float:
        """Probability that an unknown code leads into a hole from here."""
        unknown = [d for d in DIRECTIONS if d not in known]
        return sum(self.neighbour(d) in self.holes for d in unknown) / max(1, len(unknown))

    def aside(self, known: Collection[str]) -> str:
        """The known direction to a cell of less risk, if any; never one whose opposite is known, which would lead back."""
        lowest, best = self.risk(known), ""
        for direction in known:
            cell = self.neighbour(direction)
            if cell in self.holes or OPPOSITE[direction] in known:
                continue
            risk = replace(self, here=cell).risk(known)
            if risk < lowest:
                lowest, best = risk, direction
        return best


def _cells(role: str, text: str) -> list[Cell]:
    return [(int(r), int(c)) for r, c in re.findall(rf"{role}\((\d),(\d)\)", text)]


def _where(rows: Iterable[Sequence[str]], symbol: str) -> list[Cell]:
    return [(r, c) for r, row in enumerate(rows) for c, cell in enumerate(row) if cell == symbol]
