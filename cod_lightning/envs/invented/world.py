"""Invented domains: a hidden table over drawn names, the same for a whole pack; tasks ask for results in it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cod_lightning.envs.base import Unchanging, Variants, split_of_text
from cod_lightning.envs.checks import check_unused
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.invented.kinds import (
    MOST_HELD_OUT,
    MOST_NAMES,
    draw,
    expand,
    family_of,
    names_of,
    redrawn,
    turns_of,
)
from cod_lightning.envs.invented.policies import Facts, InventedPlay
from cod_lightning.envs.invented.rule import Fact, Goal, Rule, way
from cod_lightning.envs.invented.wording import CompactInvented, NaturalInvented, action_of
from cod_lightning.envs.task_world import TaskPlayers, TaskRules, TaskWorld
from cod_lightning.errors import check_between
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Pack, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class InventedTask(Unchanging):
    """The rule of the domain, and what is asked."""

    rule: Rule
    goal: Goal

    @property
    def asked(self) -> object:
        """What it asks in its domain."""
        return self.goal.asked


@dataclass(frozen=True, slots=True)
class _Choices(Unchanging):
    """What an environment draws from; apart from it, so that a copy of the environment does not copy it."""

    kinds: tuple[str, ...]
    words: Literal["seen", "unseen", "all"]
    protocol: Literal["natural", "compact"]
    held_out: int
    names: tuple[str, ...]


class InventedVariants(Variants["Invented"]):
    """Parts of the invented rules."""

    def categories(self) -> tuple[str, ...]:
        return self.env._choices.kinds

    def of_category(self, category: str) -> "Invented":
        assert category in self.categories(), f"{category} is none of {self.categories()}"
        of = self.env._choices
        return Invented([category], of.words, of.protocol, self.env.teacher, of.held_out)


class InventedRules(TaskRules["Invented"]):
    """What packs of the invented rules hide."""

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Other tables of the same names from task `at` on; a task that they leave without a solution, or with several where the
        family has one, is drawn anew."""
        rule = old = self.env._spec(pack.tasks[0]).rule
        rng = random.Random(derive_seed("invented change", pack.id, seed))
        while rule.table == old.table:
            rule = redrawn(old, rng)
        specs: list[InventedTask] = []
        for task in pack.tasks[at:]:
            kept = replace(self.env._spec(task), rule=rule)
            fits = family_of(rule).fits(rule, kept.goal)
            specs.append(kept if fits else _task(rule, derive_seed("invented change", task.seed, seed)))
        return self.env._with_specs(pack, at, specs)


class InventedPlayers(TaskPlayers["Invented"]):
    """Who plays the invented rules."""

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[InventedPlay, Facts]:
        first = self.env._spec(pack.tasks[0])
        needed: dict[Fact, None] = {}
        for task in pack.tasks if teaches else ():
            spec = self.env._spec(task)
            needed |= dict.fromkeys(way(spec.rule.facts, spec.rule.states, spec.goal, spec.goal.start, spec.goal.turns))
        play = InventedPlay(self.env.wording, first.rule, first.goal.turns, infers=not teaches, needed=tuple(needed))
        return play, first.rule.facts


class Invented(TaskWorld[InventedTask]):
    """Get the wanted result by names whose meaning is hidden.

    A world is a kind of domain with its names and its hidden table, and belongs to one split.

    Args:
        kinds: What domains there are: a family, such as `lookup`, for all its sizes, or one with sizes, such as `lookup-4-4`. Each
            is drawn equally often.
        words: Names that are drawn from: the 1,792 for training (seen), those held out (unseen), or both (all).
        protocol: Sentences for language models (natural) or single words for tiny policies (compact).
        teacher: How good the demonstrations of the warm start are.
        held_out: How many names are held out, 40 to 1,792. A tiny policy's vocabulary has these and the 1,792 for training.
    """

    companions = (InventedVariants, InventedRules, InventedPlayers, *TaskWorld.companions)

    task_type = InventedTask

    def __init__(
        self,
        kinds: Sequence[str] = ("lookup",),
        words: Literal["seen", "unseen", "all"] = "seen",
        protocol: Literal["natural", "compact"] = "natural",
        teacher: TeacherDials = TeacherDials(),  # noqa: B008  (frozen)
        held_out: int = MOST_HELD_OUT,
    ) -> None:
        check_between("data.env.held_out", held_out, MOST_NAMES, MOST_HELD_OUT, f"Leave it out for {MOST_HELD_OUT}.")
        if (protocol, words) == ("natural", "seen"):
            check_unused(Invented, "with words: seen and protocol: natural", held_out=held_out)
        self.teacher = teacher
        self._choices = _Choices(expand(kinds), words, protocol, held_out, names_of(words, held_out))
        self.wording = NaturalInvented() if protocol == "natural" else CompactInvented(names_of("all", held_out))
        self.max_turns = max(map(turns_of, self._choices.kinds))
        self.name = "-".join(["invented", ".".join(kinds), *[words][: words != "seen"]])
        self._start(self._drawn(0))

    @property
    def rules(self) -> str:
        return self.wording.rules

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        rng = random.Random(derive_seed("invented pack", self.name, str(split), seed, index))
        while True:
            rule = draw(rng.choice(self._choices.kinds), self._choices.names, rng)
            if split_of_text(" | ".join(map(" ".join, rule.table))) is split:
                break
        world_seed = rng.getrandbits(62)
        specs = [_task(rule, derive_seed(world_seed, n)) for n in range(num_tasks)]
        return self._pack(split, index, seed, world_seed, specs, asks="asked")

    def _acted(self, action: str) -> str:
        rule, goal = self._task.rule, self._task.goal
        name, self._complaint = action_of(action, goal.menu)
        if not name:
            return "malformed"
        facts = rule.shown(self._here, name)
        result, self._here = rule.effects[self._here, name]
        if not self.wording.foreseen(action, facts):
            self._seen += facts
        self._used += 1
        if result == goal.want:
            return "win"
        if result in rule.ends:
            return "lost"
        later = self.wording.later(goal, self._here, self._used)
        self._shown = f"{self.wording.facts(facts)}{self.wording.gap}{later}"
        return "late" if self._used == goal.turns else ""

    def _start(self, task: InventedTask) -> None:
        self._task, self._used = task, 0
        self._here, self._seen = task.goal.start, ()
        self._shown = self.wording.opening(task.goal)

    def _observed(self) -> str:
        return self._shown

    def _feedback(self) -> str:
        return self.wording.feedback(self._outcome, self._seen, self._complaint)


def _task(rule: Rule, seed: int) -> InventedTask:
    return InventedTask(rule=rule, goal=family_of(rule).task(rule, random.Random(seed)))
