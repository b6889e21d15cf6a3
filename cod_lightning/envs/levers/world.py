"""Levers: four levers give four colours in a hidden order, the same for a whole pack; two pulls to get the goal colour.

The smallest world in which a context pays, for smoke tests and debugging.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cod_lightning.envs.base import OPENING, Proposals, Unchanging, split_of_text
from cod_lightning.envs.checks import check_unused
from cod_lightning.envs.code_labels import NAMES, UNSEEN_NAMES, UNSEEN_WORDS, WORDS, CodeLabels
from cod_lightning.envs.facts import QuotingDials
from cod_lightning.envs.levers.wording import (
    COLOURS,
    FIXED,
    MORE_COLOURS,
    NOUNS,
    UNSEEN_COLOURS,
    UNSEEN_NOUNS,
    CompactLevers,
    LeverWording,
    NaturalLevers,
)
from cod_lightning.envs.players import TablePlay
from cod_lightning.envs.task_world import TaskPlayers, TaskRules, TaskWorld
from cod_lightning.ranges import Count, Share
from cod_lightning.seeds import derive_seed
from cod_lightning.types import Message, Pack, Split, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverTask(Unchanging):
    """One goal colour, and what the levers give."""

    goal: str
    colours: tuple[str, ...]
    """Of levers 1, 2, 3, 4."""
    labels: CodeLabels = FIXED
    """What the levers are called."""
    palette: tuple[str, ...] = COLOURS
    """The colours that there are, in the order in which the rules name them."""


class LeverPlay(TablePlay):
    """Pulls the lever that is known to give the colour, else one that is not known."""

    def proposal(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.propose(rng.choice(self.table.values)) if messages[-1].content == self.wording.offer else ""

    def answer(self, messages: Sequence[Message], known: Mapping[int, str], rng: random.Random) -> str:
        goal = self.wording.goal_of(messages[1].content)
        by_colour = {colour: code for code, colour in known.items()}
        unknown = [code for code in self.table.codes if code not in known] or list(self.table.codes)
        code = by_colour.get(goal) or rng.choice(unknown)
        return self.respond(goal, code, known, self.wording.question(goal))


class LeverProposals(Proposals["Levers"]):
    """What may be proposed in the levers."""

    @property
    def offer(self) -> str:
        return self.env.wording.offer

    def proposed(self, response: str, task: Task) -> Task | None:
        goal = self.env.wording.chosen(response)
        return replace(task, spec=replace(self.env._spec(task), goal=goal)) if goal else None


class LeverRules(TaskRules["Levers"]):
    """What packs of the levers hide."""

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """Another order of the colours from task `at` on; the goals stay."""
        first = self.env._spec(pack.tasks[0])
        rng = random.Random(derive_seed("levers change", pack.id, seed))
        colours = first.colours
        while colours == first.colours:
            colours = tuple(rng.sample(first.palette, len(first.palette)))
        return self.env._with(pack, at, colours=colours)


class LeverPlayers(TaskPlayers["Levers"]):
    """Who plays the levers."""

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[LeverPlay, dict[int, str]]:
        first = self.env._spec(pack.tasks[0])
        dials = self.env.teacher if teaches else QuotingDials()
        return LeverPlay(self.env._worded(first), dials), dict(enumerate(first.colours, start=1))


class Levers(TaskWorld[LeverTask]):
    """Pull the lever that gives the wanted colour.

    A world is an order of the levers together with the first four goals, and belongs to one split; there are but 24 orders,
    and all occur in every split.

    Args:
        max_turns: Pulls per task.
        length_penalty: A success with t pulls is worth 1 - length_penalty * t / max_turns.
        protocol: Sentences for language models (natural) or fused words for tiny policies (compact).
        teacher: How good the demonstrations of the warm start are.
        labels: Whether they are levers 1 to 4 of four colours (fixed), or noun, names (1 to 4, alpha to delta, or words like otter)
            and colours are drawn for each pack, those of training (random) or others (unseen), which needs the natural protocol.
            Orders and goals are the same ones.
    """

    companions = (LeverProposals, LeverRules, LeverPlayers, *TaskWorld.companions)

    task_type = LeverTask
    late = "miss"

    def __init__(
        self,
        max_turns: Count = 2,
        length_penalty: Share = 0.0,
        protocol: Literal["natural", "compact"] = "natural",
        teacher: QuotingDials = QuotingDials(),  # noqa: B008  (frozen)
        labels: Literal["fixed", "random", "unseen"] = "fixed",
    ) -> None:
        if protocol == "compact":
            check_unused(Levers, "with protocol=compact", labels=labels)
        self.max_turns, self.length_penalty, self.teacher = max_turns, length_penalty, teacher
        self.protocol, self.labels = protocol, labels
        self.name = {"fixed": "levers-4", "random": "levers-4-labels", "unseen": "levers-4-unseen"}[labels]
        self._start(LeverTask(goal=COLOURS[0], colours=COLOURS))

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """A hidden order and N goal colours; the order and the first four goals together belong to one split."""
        rng = random.Random(derive_seed("levers pack", str(split), seed, index))
        while True:
            colours = tuple(rng.sample(COLOURS, len(COLOURS)))
            goals = rng.choices(COLOURS, k=OPENING)
            if split_of_text(" ".join([*colours, "|", *goals])) is split:
                break
        goals = [*goals, *rng.choices(COLOURS, k=max(0, num_tasks - OPENING))][:num_tasks]
        world_seed = derive_seed("levers world", *colours)
        name = self._names(derive_seed("levers labels", str(split), seed, index))
        specs = (name(LeverTask(goal=goal, colours=colours)) for goal in goals)
        return self._pack(split, index, seed, world_seed, specs, asks="goal")

    def _acted(self, action: str) -> str:
        code, self._complaint = self._task.labels.code_of(action)
        if not code:
            return "malformed"
        self._pulls = (*self._pulls, (code, self._task.colours[code - 1]))
        if self._pulls[-1][1] == self._task.goal:
            return "win"
        return "miss" if len(self._pulls) == self._most_pulls else ""

    def _names(self, seed: int) -> Callable[[LeverTask], LeverTask]:
        """Lets a task be about the levers and colours that this seed draws."""
        if self.labels == "fixed":
            return lambda task: task
        rng, unseen = random.Random(seed), self.labels == "unseen"
        nouns, ordered, words, colours = (
            (UNSEEN_NOUNS, UNSEEN_NAMES, UNSEEN_WORDS, UNSEEN_COLOURS)
            if unseen
            else (NOUNS, NAMES, WORDS, (*COLOURS, *MORE_COLOURS))
        )
        names = rng.choice(ordered) if rng.random() < 0.25 else tuple(rng.sample(words, len(COLOURS)))
        labels, palette = CodeLabels(rng.choice(nouns), names), tuple(rng.sample(colours, len(COLOURS)))
        called: dict[str, str] = dict(zip(COLOURS, palette, strict=True))
        return lambda task: LeverTask(
            goal=called[task.goal],
            colours=tuple(called[colour] for colour in task.colours),
            labels=labels,
            palette=palette,
        )

    def _worded(self, task: LeverTask) -> LeverWording:
        return NaturalLevers(task.labels, task.palette) if self.protocol == "natural" else CompactLevers()

    def _start(self, task: LeverTask) -> None:
        self._task, self.wording = task, self._worded(task)
        self._pulls: tuple[tuple[int, str], ...] = ()
        self._most_pulls = self.max_turns

    def _observed(self) -> str:
        return self.wording.observation(self._task.goal, self._pulls, self._most_pulls)

    def _feedback(self) -> str:
        return self.wording.feedback(self._outcome, self._task.goal, self._pulls, self._complaint)

    def _reward(self) -> float:
        return 1 - self.length_penalty * len(self._pulls) / self.max_turns if self.success else 0.0
