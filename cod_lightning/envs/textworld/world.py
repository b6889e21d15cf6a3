"""Things are to be found in a house of TextWorld's; a pack is one house, and what it hides is where things are."""

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cod_lightning.envs.answers import answer_of, quoted
from cod_lightning.envs.base import Reference, TextPolicy, Traits, Unchanging, split_of_text
from cod_lightning.envs.checks import exhausted
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.task_world import TaskPlayers, TaskWorld
from cod_lightning.envs.textworld import games, houses
from cod_lightning.envs.textworld.houses import HouseSpec
from cod_lightning.envs.textworld.policies import HousePlay, Walkthrough
from cod_lightning.envs.textworld.wording import CompactHouse, HouseView, NaturalHouse
from cod_lightning.errors import ConfigError, check_between
from cod_lightning.extras import require
from cod_lightning.ranges import Count
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split

_MOST_DRAWS = 2_000
_DRAWS_OF_A_MAP = 100
_LONGEST = 100
"""Letters of a command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HouseTask(Unchanging):
    """One thing to be taken in a house."""

    house: HouseSpec
    target: str
    """As in `f_0`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Now(Unchanging):
    """How things stand in a task."""

    state: Any
    """TextWorld's."""
    typed: tuple[str, ...]
    """Commands that were carried out."""
    seen: tuple[tuple[str, str], ...]
    """Labels of things, and the routes to where they were seen."""
    shown: games.GameText | None
    """What the interpreter shows; None in compact form."""


class HousePlayers(TaskPlayers["TextWorldHouse"]):
    """Who plays the house."""

    def reference(self, kind: Reference, pack: Pack) -> TextPolicy:
        """The oracle types TextWorld's shortest solution."""
        if kind is not Reference.ORACLE:
            return super().reference(kind, pack)
        play, truth = self.play(pack)
        house = self.env._spec(pack.tasks[0]).house
        solutions = {
            self.env.wording.label(house, target): [self.env.wording.command(house, deed) for deed in plan]
            for target, plan in houses.plans(house, self.env.max_turns).items()
        }
        return Walkthrough(solutions, play, truth)

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[HousePlay, dict[str, str]]:
        house = self.env._spec(pack.tasks[0]).house
        truth = {self.env.wording.label(house, thing): route for thing, route in houses.places(house).items()}
        play = HousePlay(self.env.wording, tuple(truth), tuple(houses.routes(house).values()))
        return play, truth


class TextWorldHouse(TaskWorld[HouseTask]):
    """Take a thing in a house that TextWorld generated. The house is the same for all tasks of a pack; the thing is another.

    In natural words the compiled game is played by TextWorld's interpreter, whose score is the reward. In compact words the same
    house is played by TextWorld's rules alone, without the interpreter, which is a hundred times as fast. A split has maps of
    its own and places of the things of its own: neither a map nor what a context can say of a held-out house occurs in training.

    Args:
        layout: One room that connects to all others (hub), or a random map (grid).
        doors: none; closed, open or closed ones; locked, also locked ones, and then locked containers, with keys.
        num_rooms: Rooms of a house.
        num_things: Things that can be sought.
        num_holders: Containers and supporters that they may be in or on.
        max_turns: Commands per task.
        min_commands: A thing is sought only if taking it needs at least so many commands; at most it needs max_turns.
        protocol: TextWorld's text (natural), or fused words for tiny policies (compact), which know hubs without locks only.
        teacher: How good the demonstrations of the warm start are.
    """

    companions = (HousePlayers, *TaskWorld.companions)

    task_type = HouseTask
    _task: HouseTask

    def __init__(
        self,
        layout: Literal["hub", "grid"] = "grid",
        doors: Literal["none", "closed", "locked"] = "closed",
        num_rooms: int = 5,
        num_things: int = 5,
        num_holders: int = 4,
        max_turns: Count = 8,
        min_commands: int = 2,
        protocol: Literal["natural", "compact"] = "natural",
        teacher: TeacherDials = TeacherDials(),  # noqa: B008  (frozen)
    ) -> None:
        require("textworld", "data.env", type(self).__name__)
        check_between(
            "data.env.num_rooms", num_rooms, 2, 5 if layout == "hub" else 12, "5 is the default; a hub has at most 5."
        )
        check_between("data.env.num_things", num_things, 2, 10, "5 is the default.")
        check_between("data.env.num_holders", num_holders, 0, 10, "4 is the default.")
        check_between("data.env.min_commands", min_commands, 1, max_turns, "2 is the default; a task has max_turns.")
        if protocol == "compact" and (layout != "hub" or doors == "locked"):
            key, value = ("layout", layout) if layout != "hub" else ("doors", doors)
            expected = "what the words of data.env.protocol=compact can say: a hub, without locks"
            raise ConfigError(f"data.env.{key}", value, expected, "Use layout=hub and doors=none, or protocol=natural.")
        self.house = HouseSpec(
            map_seed=0,
            things_seed=0,
            layout=layout,
            doors=doors,
            num_rooms=num_rooms,
            num_things=num_things,
            num_holders=num_holders,
        )
        self.max_turns, self.min_commands, self.protocol, self.teacher = max_turns, min_commands, protocol, teacher
        self.traits = Traits(blocking=protocol == "natural")
        things = houses.things_of(self.house)
        chests = tuple(f"c_{n}" for n in range((num_holders + 1) // 2))
        self.wording = NaturalHouse() if protocol == "natural" else CompactHouse(things, chests)
        self.name = (
            f"textworld-{layout}-{doors}-{num_rooms}-{num_things}-{num_holders}-{min_commands}..{max_turns}-{protocol}"
        )

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """A house, and any of its things for each task, drawn with replacement."""
        world_seed = derive_seed("textworld pack", self.name, str(split), seed, index)
        rng = random.Random(world_seed)
        house = self.house
        for draw in range(_MOST_DRAWS):
            if draw % _DRAWS_OF_A_MAP == 0 or split_of_text(houses.map_text(house)) is not split:
                house = replace(house, map_seed=rng.randrange(2**31), things_seed=rng.randrange(2**31))
            elif split_of_text(houses.places_text(house)) is split and (targets := self._targets(house)):
                break
            else:
                house = replace(house, things_seed=rng.randrange(2**31))
        else:
            wanted = f"so few that a house of the split {split} has two things to seek"
            remedy = "Lower it, or raise data.env.num_rooms or data.env.max_turns."
            raise exhausted("min_commands", self.min_commands, wanted, _MOST_DRAWS, remedy)
        specs = (HouseTask(house=house, target=target) for target in rng.choices(targets, k=num_tasks))
        return self._pack(split, index, seed, world_seed, specs, asks="target")

    def _acted(self, action: str) -> str:
        """Carry out the command, if it is one that the game knows here; either way it counts."""
        answer, complaint = answer_of(action)
        command = " ".join(answer.lower().split())
        if not complaint and (len(command) > _LONGEST or not command.isascii()):
            complaint = f"{quoted(command)} is no command"
        elif not complaint and self.protocol == "compact" and command not in self.wording.all_commands:
            complaint = "unknown word"
        self._complaint = complaint
        if complaint:
            return "malformed"
        house, self._turn = self._task.house, self._turn + 1
        possible = self._commands() if self.protocol == "compact" else games.commands(house, self._now.state)
        spelled = next((one for one in possible if one.lower() == command), None)  # some names have capitals
        self._understood = spelled is not None
        if spelled is not None:
            self._move(houses.after(self._now.state, possible[spelled]), (*self._now.typed, spelled))
        if self._won():
            return "win"
        return "late" if self._turn == self.max_turns else ""

    def _targets(self, house: HouseSpec) -> list[str]:
        """What can be sought in the house; nothing where that is a single thing."""
        if not houses.fits(house):
            return []
        found = [t for t, plan in houses.plans(house, self.max_turns).items() if len(plan) >= self.min_commands]
        return found if len(found) > 1 else []

    def _start(self, task: HouseTask) -> None:
        self._task, self._turn, self._understood = task, 0, True
        self._now = _Now(state=None, typed=(), seen=(), shown=None)
        self._move(houses.world_of(task.house).state, ())

    def _move(self, state: Any, typed: tuple[str, ...]) -> None:
        """How things stand after a command, or at the beginning."""
        house = self._task.house
        seen = dict(self._now.seen)
        route = houses.routes(house)[houses.room_of(state)]
        for deed in houses.deeds(state):
            if deed.verb == "take":
                seen.setdefault(self.wording.label(house, deed.what), route)
        shown = None if self.protocol == "compact" else games.shown(self._game(), typed)
        self._now = _Now(state=state, typed=typed, seen=tuple(seen.items()), shown=shown)

    def _game(self) -> Path:
        return games.compiled(self._task.house, self._task.target, self.max_turns)

    def _commands(self) -> dict[str, Any]:
        """What can be done, by how it is spelled."""
        return {self.wording.command(self._task.house, deed): deed.action for deed in houses.deeds(self._now.state)}

    def _won(self) -> bool:
        return self._now.shown.won if self._now.shown is not None else houses.holds(self._now.state, self._task.target)

    def _view(self) -> HouseView:
        house, shown = self._task.house, self._now.shown
        return HouseView(
            wanted=self.wording.label(house, self._task.target),
            commands=tuple(self._commands()),
            text="" if shown is None else shown.text,
            understood=self._understood,
            turn=self._turn,
            max_turns=self.max_turns,
            seen=dict(self._now.seen),
        )

    def _observed(self) -> str:
        return self.wording.observation(self._view())

    def _feedback(self) -> str:
        return self.wording.feedback(self._outcome, self._view(), self._complaint)

    def _reward(self) -> float:
        shown = self._now.shown
        return float(self.success) if shown is None else shown.score / shown.max_score
