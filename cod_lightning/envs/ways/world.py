"""Games of words: one word of each slot works in all tasks of a pack, the goal of a task names slots, an answer is a word.

`goal=buy_goods`, answered `card <answer>gold</answer>`, gives `gold=no` or `gold=ok`, and success with the last of its slots;
feedback lists what every different word did.
"""

import random
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.task_world import S, TaskPlayers, TaskRules, TaskWorld
from cod_lightning.envs.ways.known import KnownWays, WaysPlay, effect
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split

VOID = "void"
"""The effect of a word that the task is not about, or no longer: nothing happens, and nothing is learned."""


@dataclass(frozen=True)
class FusedWays:
    """All that can be said in a world of ways."""

    title: str
    """All of its rules."""
    known: type[KnownWays]
    """Has the words of every slot."""
    goals: Mapping[str, tuple[str, ...]]
    """The slots that each is about."""
    outcomes: tuple[str, ...]

    def rules(self, max_turns: int) -> str:
        return self.title

    def words(self) -> tuple[str, ...]:
        ways = [way for own in self.known.ways.values() for way in own]
        effects = (effect(way, ok=ok) for way in ways for ok in (True, False))
        answers = (f"<answer>{way}</answer>" for way in ways)
        goals = (f"goal={goal}" for goal in self.goals)
        return (self.title, *goals, *effects, *answers, *self.known.ways, *self.outcomes, VOID)


class WaysRules(TaskRules["WaysWorld[Any]"]):
    """What packs of ways hide."""

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Other ways from task `at` on; the goals stay."""
        rng = random.Random(derive_seed(f"{self.env.drawn_as} change", pack.id, at, seed))
        return self.env._with(pack, at, **self.env.other_ways(rng, pack.split, self.env._spec(pack.tasks[0])))


class WaysPlayers(TaskPlayers["WaysWorld[Any]"]):
    """Who plays for ways."""

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[WaysPlay, KnownWays]:
        """With the ways of the first task, if they change."""
        known, truth = self.env.wording.known, self.env.truth(self.env._spec(pack.tasks[0]))
        return WaysPlay(known, self.env.wording.goals), known(dict.fromkeys(truth.values(), True))


class WaysWorld(TaskWorld[S]):
    """Find out which words work. Tasks are those of another world, of which the goal and what the pack hides count here.

    Args:
        teacher: How good the demonstrations of the warm start are.
    """

    companions = (WaysRules, WaysPlayers, *TaskWorld.companions)
    wording: FusedWays
    drawn_as: ClassVar[str]
    """Part of every seed."""
    goal: ClassVar[str]
    """The attribute of a task with its goal."""
    misses: int
    """Wrong words that a task forgives."""

    def __init__(self, teacher: TeacherDials = TeacherDials()) -> None:  # noqa: B008  (frozen)
        self.teacher = teacher

    @abstractmethod
    def hidden(self, rng: random.Random, split: Split) -> Any:
        """What the tasks of a pack have in common."""

    @abstractmethod
    def task(self, rng: random.Random, split: Split, hidden: Any) -> S:
        """A task of a pack that hides this."""

    @abstractmethod
    def other_ways(self, rng: random.Random, split: Split, task: S) -> Mapping[str, Any]:
        """Fields of a task in which other ways work."""

    @abstractmethod
    def truth(self, task: S) -> Mapping[str, str]:
        """The way that works, by slot."""

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """N tasks with the same ways."""
        world_seed = derive_seed(f"{self.drawn_as} pack", self.name, str(split), seed, index)
        hidden = self.hidden(random.Random(world_seed), split)
        rngs = (random.Random(derive_seed(world_seed, n)) for n in range(num_tasks))
        specs = (self.task(rng, split, hidden) for rng in rngs)
        return self._pack(split, index, seed, world_seed, specs, asks=self.goal)

    def _start(self, task: S) -> None:
        self._turn, self._missed = 0, 0
        self._goal: str = getattr(task, self.goal)
        self._truth, self._open = self.truth(task), self.wording.goals[self._goal]
        self._shown: tuple[str, ...] = ()

    def _observed(self) -> str:
        return self._shown[-1] if self._shown else f"goal={self._goal}"

    def _acted(self, action: str) -> str:
        self._turn += 1
        said, complaint = answer_of(action)
        slot = self.wording.known.slot_of(said)
        if complaint or not slot:
            return "malformed"
        right = slot in self._open and self._truth[slot] == said
        self._shown += (effect(said, ok=right) if slot in self._open else VOID,)
        if right:
            self._open = tuple(other for other in self._open if other != slot)
        self._missed += not right
        if not self._open:
            return "win"
        if self._missed > self.misses:
            return "lost"
        return "late" if self._turn == self.max_turns else ""

    def _feedback(self) -> str:
        return " ".join([self._outcome, *dict.fromkeys(self._shown)])
