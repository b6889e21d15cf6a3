"""Doors: many doors, each opened by one of four keys, the same for a whole pack; a task asks for one door and two tries to open it.

A world for memories. How many facts there are to keep is a parameter, and a task needs one of them, so that a context that is
rewritten whole has to carry more than it needs, while one that is retrieved for the task has not. An open door may show other
doors and their keys (`glimpses`), so that facts come faster than tasks can use them.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cod_lightning.envs.base import OPENING, Proposals, Unchanging, split_of_text
from cod_lightning.envs.doors.wording import KEYS, CompactDoors, DoorWording, Facts, NaturalDoors
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.players import Play
from cod_lightning.envs.task_world import TaskPlayers, TaskRules, TaskWorld
from cod_lightning.errors import check_between
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Message, Pack, Role, Split, Task

_MOST_DOORS = 256
_MOST_DEMONSTRATED = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorTask(Unchanging):
    """A door to open, and what there is to find out."""

    door: int
    keys: tuple[str, ...]
    """Of doors 1, 2, ..."""
    glimpsed: tuple[int, ...] = ()
    """Other doors that are seen open once the task is over."""


@dataclass(frozen=True)
class DoorPlay(Play[Facts]):
    """Takes the key that is known, else one that was not tried."""

    wording: DoorWording

    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.respond(self._asked(messages)[0], rng.choice(KEYS))

    def known(self, messages: Sequence[Message], *, trust_context: bool) -> Facts:
        said = [m.content for m in messages[2:] if m.role is Role.USER]
        return self.wording.parse("\n".join([messages[0].content, *said] if trust_context else said))

    def answer(self, messages: Sequence[Message], known: Facts, rng: random.Random) -> str:
        door, tried = self._asked(messages)
        key = known.get(door)
        untried = [one for one in KEYS if one not in tried]
        return self.wording.respond(door, key if key in untried else rng.choice(untried))

    def proposal(self, messages: Sequence[Message], rng: random.Random) -> str:
        asked = messages[-1].content == self.wording.offer
        return self.wording.propose(rng.randint(1, self.wording.num_doors)) if asked else ""

    def recorded(self, messages: Sequence[Message]) -> Facts:
        return self.wording.parse("\n".join(message.content for message in messages))

    def noisy(self, facts: Facts, accuracy: float, rng: random.Random) -> Facts:
        """Each fact kept with that probability, else with any key; doors without a fact stay without one."""
        return {door: key if rng.random() < accuracy else rng.choice(KEYS) for door, key in facts.items()}

    def earlier(self, truth: Facts, rng: random.Random) -> Facts:
        """Some of the doors, since a task is preceded by a few."""
        return {door: truth[door] for door in self.some(rng)}

    def junk(self, rng: random.Random) -> Facts:
        return {door: rng.choice(KEYS) for door in self.some(rng)}

    def write(self, facts: Facts, messages: Sequence[Message] = ()) -> str:
        return self.wording.write(facts)

    def _asked(self, messages: Sequence[Message]) -> tuple[int, tuple[str, ...]]:
        """The door of the task, and the keys that did not open it."""
        seen = [self.wording.seen(m.content) for m in messages[1:] if m.role is Role.USER]
        return seen[0][0], tuple(key for _, tried in seen for key in tried)

    def some(self, rng: random.Random) -> list[int]:
        """Half of the doors or more, but no more than a dozen."""
        doors = range(1, self.wording.num_doors + 1)
        most = min(_MOST_DEMONSTRATED, len(doors))
        return rng.sample(doors, rng.randint(most // 2, most))


class DoorProposals(Proposals["Doors"]):
    """What may be proposed in the doors."""

    @property
    def offer(self) -> str:
        return self.env.wording.offer

    def proposed(self, response: str, task: Task) -> Task | None:
        """The door that is chosen; where the pack's own task would have shown it afterwards, it shows its own door instead."""
        own, door = self.env._spec(task), self.env.wording.door_of(response)
        if not door:
            return None
        glimpsed = tuple(own.door if other == door else other for other in own.glimpsed)
        return replace(task, spec=replace(own, door=door, glimpsed=glimpsed))


class DoorRules(TaskRules["Doors"]):
    """What packs of the doors hide."""

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Another key for every door from task `at` on; the doors asked for stay."""
        rng = random.Random(derive_seed("doors change", pack.id, seed))
        old = self.env._spec(pack.tasks[0]).keys
        return self.env._with(pack, at, keys=tuple(rng.choice([key for key in KEYS if key != was]) for was in old))


class DoorPlayers(TaskPlayers["Doors"]):
    """Who plays the doors."""

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[DoorPlay, Facts]:
        keys = self.env._spec(pack.tasks[0]).keys
        return DoorPlay(self.env.wording), dict(enumerate(keys, start=1))


class Doors(TaskWorld[DoorTask]):
    """Open the door that is asked for.

    A world is the keys of all doors together with the first four doors asked for, and belongs to one split.

    Args:
        num_doors: Facts that there are to find out.
        glimpses: Other doors whose keys are shown at the end of each task.
        max_turns: Tries per task, at most 4.
        protocol: Sentences for language models (natural) or fused words for tiny policies (compact).
        teacher: How good the demonstrations of the warm start are.
    """

    companions = (DoorProposals, DoorRules, DoorPlayers, *TaskWorld.companions)

    task_type = DoorTask
    late = "miss"

    def __init__(
        self,
        num_doors: int = 16,
        glimpses: int = 0,
        max_turns: int = 2,
        protocol: Literal["natural", "compact"] = "natural",
        teacher: TeacherDials = TeacherDials(),  # noqa: B008  (frozen)
    ) -> None:
        check_between("data.env.num_doors", num_doors, 2, _MOST_DOORS, "16 is the default.")
        check_between("data.env.glimpses", glimpses, 0, num_doors - 1, "0 is the default.")
        check_between("data.env.max_turns", max_turns, 1, len(KEYS), "There are four keys; 2 is the default.")
        self.num_doors, self.glimpses, self.max_turns = num_doors, glimpses, max_turns
        self.protocol, self.teacher = protocol, teacher
        self.name = f"doors-{num_doors}" + (f"-{glimpses}" if glimpses else "")
        self.wording = NaturalDoors(num_doors) if protocol == "natural" else CompactDoors(num_doors)
        self._start(DoorTask(door=1, keys=KEYS[:1] * num_doors))

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """The keys of all doors, and N doors to open; the keys and the first four doors together belong to one split."""
        rng = random.Random(derive_seed("doors pack", self.num_doors, str(split), seed, index))
        while True:
            keys = tuple(rng.choices(KEYS, k=self.num_doors))
            doors = rng.choices(range(1, self.num_doors + 1), k=OPENING)
            if split_of_text(" ".join([*keys, "|", *map(str, doors)])) is split:
                break
        doors = [*doors, *rng.choices(range(1, self.num_doors + 1), k=max(0, num_tasks - OPENING))][:num_tasks]
        world_seed = derive_seed("doors world", *keys)
        specs = (
            DoorTask(door=door, keys=keys, glimpsed=self._glimpsed(door, derive_seed(world_seed, n)))
            for n, door in enumerate(doors)
        )
        return self._pack(split, index, seed, world_seed, specs, asks="door")

    def _acted(self, action: str) -> str:
        key, self._complaint = self.wording.key_of(action)
        if not key:
            return "malformed"
        self._tried = (*self._tried, key)
        if key == self._task.keys[self._task.door - 1]:
            return "win"
        return "miss" if len(self._tried) == self.max_turns else ""

    def _glimpsed(self, door: int, seed: int) -> tuple[int, ...]:
        others = [other for other in range(1, self.num_doors + 1) if other != door]
        return tuple(sorted(random.Random(derive_seed(seed, "glimpses")).sample(others, self.glimpses)))

    def _start(self, task: DoorTask) -> None:
        self._task, self._tried = task, ()

    def _observed(self) -> str:
        return self.wording.observation(self._task.door, self._tried, self.max_turns)

    def _feedback(self) -> str:
        task = self._task
        glimpsed = {door: task.keys[door - 1] for door in task.glimpsed} if self._outcome != "malformed" else {}
        opens = task.keys[task.door - 1]
        return self.wording.feedback(self._outcome, task.door, self._tried, opens, glimpsed, self._complaint)
