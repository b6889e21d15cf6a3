"""The contract of an environment: a `gymnasium.Env` in text that can also draw packs, and the companions that it may have.

One object serves one lifecycle. `reset(options={"task": task})` starts the next task and keeps what the environment itself
carries over; the last observation of a task is its feedback; `info` stays empty; `copy.deepcopy` is a snapshot, and how the
rollout gives every sibling its own environment; `close` follows when its lifecycle has ended.

To add one: one file with one subclass of `TextEnv`, chosen with `data.env.class_path`. It parses actions and words its feedback
itself and never meets a token, a model or a coroutine. What else a run can use (players, a vocabulary, proposals, ...) is
a `Companion`, named in `companions`; `beside(env, Players)` finds it. `task_world.TaskWorld` starts and ends tasks of one kind.
"""

import hashlib
import math
import random
import string
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, Self, TypeVar

import gymnasium

from cod_lightning.companions import beside as beside
from cod_lightning.errors import ConfigError
from cod_lightning.types import EpisodeStatus, Message, Observation, Pack, Split, Task

Stepped = tuple[str, float, bool, bool, dict[str, Any]]
"""What a step returns in text: observation, reward, terminated, truncated, and no info."""
SteppedInParts = tuple[Observation, float, bool, bool, dict[str, Any]]
"""The same where the observation may have parts."""
OPENING = 4
"""Tasks that decide the split of a pack together with its rule, where rules are few, however many tasks it has."""


class Unchanging:
    """Never changes once it is made, so its copy is itself: environments are copied for every lifecycle."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class Reference(StrEnum):
    """The policy without a model that plays a world for comparison."""

    RANDOM = "random"
    """Legal answers at random; notes nothing."""
    SCRIPTED = "scripted"
    """Perfect memory and task-wise optimal play (or the best we know of), from what the dialogue and the context say.

    A reference, not a ceiling: a policy that explores more in early tasks than pays there can do better later. With its
    context hidden it is the memoryless reference.
    """
    ORACLE = "oracle"
    """Knows the pack's hidden rule from the start."""


def split_of_text(text: str) -> Split:
    """The split of a world, by its canonical text, so that splits are disjoint: 8 of 10 worlds train, 1 validates, 1 tests.

    >>> split_of_text("SF/FG") is split_of_text("SF/FG")
    True
    """
    bucket = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % 10
    return Split.TRAIN if bucket < 8 else (Split.VALIDATION, Split.TEST)[bucket - 8]


class AnyText(gymnasium.spaces.Text):
    """The space of all texts, whatever their letters; samples are printable ASCII."""

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)


def text_space() -> AnyText:
    """What a world of texts takes and shows."""
    return AnyText(100_000, min_length=0, charset=string.printable)


class TextPolicy(ABC):
    """A policy from text to text: stateless, so that one object can play many lifecycles at once.

    `engines.scripted.ScriptedEngine` wraps it, so that references and demonstrations run through the very same rollout,
    segment and evaluation code as a language model.
    """

    @abstractmethod
    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        """The next response in a solve episode, after this dialogue (the last message is the user's)."""

    @abstractmethod
    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        """The new context, after the dialogue that asks for its rewrite; the mechanism adds its own delimiters."""

    def propose(self, messages: Sequence[Message], rng: random.Random) -> str:
        """A proposal of a task, where this dialogue asks for one (`Proposals.offer`); empty elsewhere."""
        return ""


class Demonstrator(TextPolicy):
    """A policy that knows a pack's hidden rule and teaches the protocol with a dial for quality."""

    @abstractmethod
    def context(self, rng: random.Random) -> str:
        """A context as an earlier task might have left it: true in part, junk, or empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What holds for every task of an environment."""

    reward_range: tuple[float, float] = (0.0, 1.0)
    """The least and the most reward of a task."""
    hides_reward: bool = False
    """Whether reward and success stay hidden from the policy, so that no context mechanism may show or use them."""
    blocking: bool = False
    """Whether `reset` or `step` waits for something outside, such as a judge behind a network; the rollout then calls them in a
    thread."""
    shows_images: bool = False
    """Whether observations may have images among their parts; only engines that take media play it."""

    @property
    def least(self) -> float:
        """The reward of a task that was not played to its end, or not legibly: none is lower; 0 where there is no bound."""
        low = self.reward_range[0]
        return low if math.isfinite(low) else 0.0


class TextEnv(gymnasium.Env[Observation, str], ABC):
    """An environment whose actions are text, as its observations are; these may also be a tuple of parts, images among them.

    `reset` returns the first observation; `step(action_text)` returns (observation, reward, terminated, truncated, {}).
    Intermediate rewards are 0; the last step's reward is the task's. Any string is a legal action: text that does not
    parse ends the task with the lowest reward and a feedback that names the broken rule. Neither observations nor
    feedback repeat a policy's text raw (`answers.quoted`).
    """

    name: str
    """Short identity, part of every pack id; two configurations that draw different packs differ in it."""
    max_turns: int
    """Turns per task, at least 1."""
    traits: Traits = Traits()
    companions: "tuple[type[Companion[Any]], ...]" = ()
    """Classes that stand beside the environment; the first of a kind counts."""

    @property
    @abstractmethod
    def rules(self) -> str:
        """The system text: what the environment is, what is hidden, how to answer. Read after `reset`; the same for all tasks of a
        pack."""

    @property
    @abstractmethod
    def success(self) -> bool:
        """True once the current task is solved."""

    @property
    @abstractmethod
    def status(self) -> EpisodeStatus:
        """COMPLETED, MALFORMED or TRUNCATED, once the current task has ended."""

    @abstractmethod
    def step(self, action: str) -> SteppedInParts:
        """Read the answer, carry it out, and show what came of it."""

    @abstractmethod
    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """The pack with this identity: a pure function of the arguments and of the environment's own parameters.

        Packs of different splits never share a hidden rule. Raises `ConfigError` where no such pack exists.
        """


E = TypeVar("E", bound=TextEnv)


class Companion(Generic[E]):
    """What stands beside an environment: made around it when it is asked for, and keeps nothing of its own.

    Each kind says what holds for an environment without one.

    Args:
        env: The environment, at its present task.
    """

    def __init__(self, env: E) -> None:
        self.env = env


class Players(Companion[E]):
    """Policies without a model: references for comparison, teachers for the warm start. By default none."""

    def reference(self, kind: Reference, pack: Pack) -> TextPolicy:
        """A policy that plays this pack for comparison. Raises `NotImplementedError` where there is none."""
        raise NotImplementedError(f"{type(self.env).__name__} has no {kind} reference")

    def demonstrator(self, pack: Pack) -> Demonstrator:
        """A teacher for this pack, for the warm start. Raises `NotImplementedError` where there is none."""
        raise NotImplementedError(f"{type(self.env).__name__} has no demonstrator; a warm start needs one")


class Vocabulary(Companion[E]):
    """The words of a closed vocabulary, for tiny policies. By default none: the environment needs a tokenizer of any text."""

    def words(self) -> tuple[str, ...]:
        """Every word that the compact protocol can show or ask for."""
        return ()


class HiddenRules(Companion[E]):
    """What a pack hides, for intervals, and how it can change."""

    def hidden_rule(self, pack: Pack) -> str:
        """What the pack hides, as text: the same for packs that hide the same (of the first task, if it changes).

        Intervals resample packs by it. By default the pack's id: no two packs hide the same.
        """
        return pack.id

    def changes_at(self, pack: Pack) -> int | None:
        """Position of the pack's first task that hides something else than the one before; None where all hide the same."""
        return None

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """The pack with another hidden rule from task `at` on (1 <= at < N), drawn from `seed`.

        All that shows (labels, names, sizes, tasks' goals where they still make sense) stays, so that nothing but the rule
        shows the change. Its split stays.
        """
        expected = "an environment whose hidden rule can change"
        raise ConfigError("data.env", type(self.env).__name__, expected, "Choose another one.")


class Variants(Companion[E]):
    """Other environments made of this one: parts of it for curricula, and a control without memory."""

    def categories(self) -> tuple[str, ...]:
        """The kinds of packs that a curriculum can tell apart, at least one; by default the name."""
        return (self.env.name,)

    def of_category(self, category: str) -> TextEnv:
        """The environment, drawing packs of one of its categories only; it plays all packs that the whole one plays."""
        assert category in self.categories(), f"{category} is none of {self.categories()}"
        return self.env

    def without_world_memory(self) -> TextEnv:
        """The environment with the same packs, carrying nothing from task to task; itself where it never does."""
        return self.env


class Proposals(Companion[E]):
    """Tasks that the policy proposes. By default none may be proposed."""

    @property
    def offer(self) -> str:
        """The user's message that asks for the proposal of a task, and says what may be proposed; empty where nothing may.

        Read after `reset`; the same for all tasks of a pack. It is shown below the rules and the context.
        """
        return ""

    def proposed(self, response: str, task: Task) -> Task | None:
        """The task that this response to `offer` proposes, made from one of the pack's; None where it proposes none.

        Any text may come. A task hides what the pack hides, and ends as its tasks do.
        """
        return None


class Tools(Companion[E]):
    """Calls that a response may make. By default none."""

    @property
    def schemas(self) -> Sequence[dict[str, Any]]:
        """Of the calls, as chat templates list them; the same for all tasks of a pack.

        Where there are any, the policy's template lists them and says how they are called; the calls of a response then reach
        `step` as JSON, one `{"name": ..., "arguments": {...}}` a line, between answer tags.
        """
        return ()

    @property
    def results(self) -> Sequence[str]:
        """What each call of the latest answer has shown, in order, where the task goes on; calls beyond were not carried out."""
        return ()
