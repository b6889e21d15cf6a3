"""Levers: four levers give four colours in a hidden order, the same for a whole pack; two pulls to get the goal colour.

The smallest world in which a context pays, for smoke tests and debugging.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cod_lightning.envs.answers import code_of
from cod_lightning.envs.base import Demonstrator, TextEnv, TextPolicy, text_space
from cod_lightning.envs.facts import (
    FactTable,
    TeacherDials,
    demonstrated_context,
    known_facts,
    noisy_facts,
    recorded_facts,
)
from cod_lightning.envs.splits import split_of_text
from cod_lightning.errors import ConfigError
from cod_lightning.seeds import derive_seed
from cod_lightning.types import EpisodeStatus, Message, Pack, Split, Task

COLOURS = ("red", "green", "blue", "gold")
_MOST_DRAWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LeverTask:
    """One goal colour, and what the levers give."""

    goal: str
    colours: tuple[str, ...]
    """Of levers 1, 2, 3, 4."""


class Levers(TextEnv):
    """Pull the lever that gives the wanted colour.

    Args:
        max_turns: Pulls per task.
        length_penalty: A success with t pulls is worth 1 - length_penalty * t / max_turns.
        protocol: Sentences for language models (natural) or fused words for tiny policies (compact).
        teacher: How good the demonstrations of the warm start are.
    """

    name = "levers-4"

    def __init__(
        self,
        max_turns: int = 2,
        length_penalty: float = 0.0,
        protocol: Literal["natural", "compact"] = "natural",
        teacher: TeacherDials = TeacherDials(),  # noqa: B008  (frozen)
    ) -> None:
        if max_turns < 1:
            raise ConfigError("data.env.max_turns", max_turns, "at least 1", "2 is the default.")
        if not 0 <= length_penalty <= 1:
            raise ConfigError("data.env.length_penalty", length_penalty, "in [0, 1]", "0 is the default.")
        self.max_turns, self.length_penalty, self.teacher = max_turns, length_penalty, teacher
        self.wording: LeverWording = NaturalLevers() if protocol == "natural" else CompactLevers()
        self.observation_space = self.action_space = text_space()
        self._start(LeverTask(goal=COLOURS[0], colours=COLOURS))

    @property
    def rules(self) -> str:
        """System text."""
        return self.wording.rules(self.max_turns)

    @property
    def success(self) -> bool:
        """True once the goal colour has come."""
        return self._outcome == "win"

    @property
    def status(self) -> EpisodeStatus:
        """Completed on the goal colour, truncated without pulls left, malformed for an unreadable answer."""
        ends = {"miss": EpisodeStatus.TRUNCATED, "malformed": EpisodeStatus.MALFORMED}
        return ends.get(self._outcome, EpisodeStatus.COMPLETED)

    def words(self) -> tuple[str, ...]:
        """The compact vocabulary."""
        return self.wording.words()

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """A hidden order and N goal colours; both together belong to one split."""
        rng = random.Random(derive_seed("levers pack", str(split), seed, index))
        for _ in range(_MOST_DRAWS):
            colours = tuple(rng.sample(COLOURS, len(COLOURS)))
            goals = rng.choices(COLOURS, k=num_tasks)
            if split_of_text(" ".join([*colours, "|", *goals])) is split:
                break
        else:
            raise ConfigError(
                "data.env", self.name, f"a pack of the split {split}", f"None was found in {_MOST_DRAWS} draws."
            )
        world_seed = derive_seed("levers world", *colours)
        tasks = tuple(
            Task(id=str(n), seed=derive_seed(world_seed, n), spec=LeverTask(goal=goal, colours=colours))
            for n, goal in enumerate(goals)
        )
        return Pack(id=f"{self.name}/{split}/{seed}/{index}", split=split, world_seed=world_seed, tasks=tasks)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start `options["task"]`, or, without one, a task drawn from the environment's own generator."""
        super().reset(seed=seed)
        if options and "task" in options:
            self._start(_spec(options["task"]))
        else:
            rng = random.Random(int(self.np_random.integers(2**62)))
            self._start(LeverTask(goal=rng.choice(COLOURS), colours=tuple(rng.sample(COLOURS, len(COLOURS)))))
        return self.wording.observation(self._task.goal, self._pulls, self.max_turns), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Pull, and tell what came."""
        assert not self._outcome, "the task is over; call reset()"
        code, complaint = code_of(action, "Lever", len(COLOURS))
        if not code:
            return self._end("malformed", complaint)
        self._pulls = (*self._pulls, (code, self._task.colours[code - 1]))
        if self._pulls[-1][1] == self._task.goal:
            return self._end("win")
        if len(self._pulls) == self.max_turns:
            return self._end("miss")
        return self.wording.observation(self._task.goal, self._pulls, self.max_turns), 0.0, False, False, {}

    def render(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Goal and pulls as text."""
        return f"want {self._task.goal}; " + ", ".join(f"{code} gave {colour}" for code, colour in self._pulls)

    def reference(self, name: str) -> TextPolicy:
        """`random` or `scripted`."""
        if name == "random":
            return RandomLeverPolicy(self.wording)
        if name == "scripted":
            return ScriptedLeverPolicy(self.wording)
        raise ConfigError("reference", name, "random or scripted", "Use one of them.")

    def demonstrator(self, pack: Pack) -> Demonstrator:
        """A teacher that knows this pack's order."""
        truth = dict(enumerate(_spec(pack.tasks[0]).colours, start=1))
        return LeverTeacher(self.wording, truth, self.teacher)

    def _start(self, task: LeverTask) -> None:
        self._task, self._outcome = task, ""
        self._pulls: tuple[tuple[int, str], ...] = ()

    def _end(self, outcome: str, complaint: str = "") -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._outcome = outcome
        reward = 1 - self.length_penalty * len(self._pulls) / self.max_turns if outcome == "win" else 0.0
        words = self.wording.feedback(outcome, self._task.goal, self._pulls, complaint)
        return words, reward, outcome != "miss", outcome == "miss", {}


def _spec(task: Task) -> LeverTask:
    assert isinstance(task.spec, LeverTask), f"task {task.id} is not about levers"
    return task.spec


Pulls = Sequence[tuple[int, str]]


class LeverWording(ABC):
    """How levers are put into words."""

    facts: FactTable

    @abstractmethod
    def rules(self, max_turns: int) -> str:
        """System text."""

    @abstractmethod
    def observation(self, goal: str, pulls: Pulls, max_turns: int) -> str:
        """What is seen before a pull."""

    @abstractmethod
    def feedback(self, outcome: str, goal: str, pulls: Pulls, complaint: str) -> str:
        """Words after the task; outcome is win, miss or malformed."""

    @abstractmethod
    def respond(self, goal: str, code: int) -> str:
        """A well-formed response."""

    @abstractmethod
    def goal_of(self, observation: str) -> str:
        """The wanted colour, read back from the first observation."""

    def words(self) -> tuple[str, ...]:
        """Closed vocabulary, if there is one."""
        return ()


class CompactLevers(LeverWording):
    """`want=red`, then `2=blue`, and at the end `win 2=blue 1=red`; answers are single words."""

    facts = FactTable("Lever", COLOURS, compact=True)

    def rules(self, max_turns: int) -> str:
        """One word."""
        return "levers"

    def observation(self, goal: str, pulls: Pulls, max_turns: int) -> str:
        """The goal at first, then what the last pull gave."""
        return f"{pulls[-1][0]}={pulls[-1][1]}" if pulls else f"want={goal}"

    def feedback(self, outcome: str, goal: str, pulls: Pulls, complaint: str) -> str:
        """The outcome and every different effect."""
        return " ".join([outcome, *dict.fromkeys(f"{code}={colour}" for code, colour in pulls)])

    def respond(self, goal: str, code: int) -> str:
        """A thought, then the answer."""
        return f"{goal} <answer>Lever_{code}</answer>"

    def goal_of(self, observation: str) -> str:
        """After `want=`."""
        return observation.removeprefix("want=")

    def words(self) -> tuple[str, ...]:
        """Goals, facts, answers, thoughts, outcomes."""
        answers = tuple(f"<answer>Lever_{code}</answer>" for code in self.facts.codes)
        wanted = tuple(f"want={colour}" for colour in COLOURS)
        return ("levers", *wanted, *self.facts.words(), *answers, *COLOURS, "win", "miss", "malformed")


class NaturalLevers(LeverWording):
    """Full sentences."""

    facts = FactTable("Lever", COLOURS, compact=False)

    def rules(self, max_turns: int) -> str:
        """What there is, what is hidden, and how to answer."""
        return (
            f"There are four levers, 1 to 4. Each gives one of the colours {', '.join(COLOURS)}, no two the same; which gives "
            "which is hidden and stays the same in related tasks, so what you find out may pay later.\n\n"
            f"You are told a colour and have {max_turns} pulls to get it: reward 1 if it comes, else 0.\n\n"
            "Answer with brief reasoning, then exactly one action in this form:\n<answer>Lever X</answer>"
        )

    def observation(self, goal: str, pulls: Pulls, max_turns: int) -> str:
        """Pull i of N, the last effect, the goal."""
        last = f"\nLever {pulls[-1][0]} gives {pulls[-1][1]}." if pulls else ""
        return f"Pull {len(pulls) + 1} of {max_turns}.{last}\nThe wanted colour is {goal}. Which lever do you pull?"

    def feedback(self, outcome: str, goal: str, pulls: Pulls, complaint: str) -> str:
        """The last effect, and how the task ended."""
        ending = {
            "win": f"That is the wanted colour, after {len(pulls)} pulls.",
            "miss": f"You have no pulls left; the wanted colour was {goal}.",
            "malformed": f"Your answer could not be read: {complaint}. Expected one <answer>Lever X</answer> with X from 1 to 4. "
            "The task is over.",
        }[outcome]
        return ending if outcome == "malformed" else f"Lever {pulls[-1][0]} gives {pulls[-1][1]}. {ending}"

    def respond(self, goal: str, code: int) -> str:
        """One sentence, then the answer."""
        return f"I want {goal}. <answer>Lever {code}</answer>"

    def goal_of(self, observation: str) -> str:
        """From the sentence that names it."""
        return observation.partition("The wanted colour is ")[2].partition(".")[0]


@dataclass(frozen=True)
class RandomLeverPolicy(TextPolicy):
    """Any lever; notes nothing."""

    wording: LeverWording

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        """A legal answer."""
        return self.wording.respond(rng.choice(COLOURS), rng.choice(self.wording.facts.codes))

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Everything unknown."""
        return self.wording.facts.write({})


@dataclass(frozen=True)
class ScriptedLeverPolicy(TextPolicy):
    """Perfect memory; pulls the lever that is known to give the colour, else one that is not known."""

    wording: LeverWording

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        """The next pull."""
        return pull(self.wording, messages, known_facts(self.wording.facts, messages, trust_context=True), rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        """What was known, overruled by what was seen."""
        return self.wording.facts.write(recorded_facts(self.wording.facts, messages))


@dataclass(frozen=True)
class LeverTeacher(Demonstrator):
    """Shows the protocol; notes only part of what it saw."""

    wording: LeverWording
    truth: Mapping[int, str]
    dials: TeacherDials

    def context(self, rng: random.Random) -> str:
        """True in part, junk, or none."""
        return demonstrated_context(self.wording.facts, self.truth, self.dials, rng)

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        """The next pull."""
        trusting = rng.random() < self.dials.follow
        return pull(self.wording, messages, known_facts(self.wording.facts, messages, trust_context=trusting), rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Each entry as the record has it with probability `note_accuracy`, else anything."""
        table = self.wording.facts
        return table.write(noisy_facts(table, recorded_facts(table, messages), self.dials.note_accuracy, rng))


def pull(wording: LeverWording, messages: Sequence[Message], known: Mapping[int, str], rng: random.Random) -> str:
    """The lever known to give the goal colour, else an unknown one."""
    goal = wording.goal_of(messages[1].content)
    by_colour = {colour: code for code, colour in known.items()}
    unknown = [code for code in wording.facts.codes if code not in known] or list(wording.facts.codes)
    return wording.respond(goal, by_colour.get(goal) or rng.choice(unknown))
