"""The contract of a world: a `gymnasium.Env` in text space that can also draw packs.

One object serves one lifecycle. `reset(options={"task": task})` starts the next task and keeps whatever the world itself
carries over; the last observation of a task is its feedback; `info` stays empty (typed properties instead);
`copy.deepcopy` is a snapshot, and how the rollout gives every sibling its own world; `close` follows when its lifecycle has ended.

To add a world: one file with one subclass of `TextEnv`, chosen with `data.env.class_path`. It parses actions and words
its feedback itself and never meets a token, a model or a coroutine. `task_world.TaskWorld` starts and ends its tasks, and
`players` play it for comparison, where that fits.
"""

import random
import string
from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import gymnasium

from cod_lightning.envs.for_people import ForPeople
from cod_lightning.errors import ConfigError
from cod_lightning.types import EpisodeStatus, Message, Pack, Split, Task

Stepped = tuple[str, float, bool, bool, dict[str, Any]]
"""What a step returns: observation, reward, terminated, truncated, and no info."""


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


def text_space(more: str = "", max_length: int = 100_000) -> gymnasium.spaces.Text:
    """The space of printable text, with whatever other letters a world shows."""
    return gymnasium.spaces.Text(max_length, min_length=0, charset=string.printable + more)


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
        """A proposal of a task, where this dialogue asks for one (`TextEnv.offer`); empty elsewhere."""
        return ""


class Demonstrator(TextPolicy):
    """A policy that knows a pack's hidden rule and teaches the protocol with a dial for quality."""

    @abstractmethod
    def context(self, rng: random.Random) -> str:
        """A context as an earlier task might have left it: true in part, junk, or empty."""


class TextEnv(gymnasium.Env[str, str], ABC):
    """A world whose observations and actions are text.

    `reset` returns the first observation; `step(action_text)` returns (observation, reward, terminated, truncated, {}).
    Intermediate rewards are 0; the last step's reward is the task's. Any string is a legal action: text that does not
    parse ends the task with the world's lowest reward and a feedback that names the broken rule. Neither observations nor
    feedback repeat a policy's text raw (`answers.quoted`).
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"]}  # noqa: RUF012  (gymnasium's own shape)
    name: str
    """Short identity, part of every pack id; two configurations that draw different worlds differ in it."""
    max_turns: int
    """Turns per task, at least 1."""
    reward_range: tuple[float, float] = (0.0, 1.0)
    hides_reward: bool = False
    """Whether reward and success stay hidden from the policy, so that no context mechanism may show or use them."""
    blocking: bool = False
    """Whether `reset` or `step` waits for something outside, such as a judge behind a network; the rollout then calls them in a
    thread."""

    @property
    @abstractmethod
    def rules(self) -> str:
        """The system text: what the world is, what is hidden, how to answer. Read after `reset`; the same for all tasks of a
        pack."""

    @property
    @abstractmethod
    def success(self) -> bool:
        """True once the current task is solved."""

    @property
    @abstractmethod
    def status(self) -> EpisodeStatus:
        """COMPLETED, MALFORMED or TRUNCATED, once the current task has ended."""

    @property
    def tools(self) -> Sequence[dict[str, Any]]:
        """Schemas of the calls that a response may make, as chat templates list them; the same for all tasks of a pack.

        Where there are any, the policy's template lists them and says how they are called; the calls of a response then reach
        `step` as JSON, one `{"name": ..., "arguments": {...}}` a line, between answer tags.
        """
        return ()

    @property
    def results(self) -> Sequence[str]:
        """What each call of the latest answer has shown, in order, where the task goes on; calls beyond were not carried out."""
        return ()

    @property
    def for_people(self) -> ForPeople:
        """Help for a person who plays or watches; the answer by itself, unless a world says more."""
        return ForPeople()

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

    @abstractmethod
    def step(self, action: str) -> Stepped:
        """Read the answer, carry it out, and show what came of it."""

    def render(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The task as text."""
        raise NotImplementedError

    @abstractmethod
    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """The pack with this identity: a pure function of the arguments and of the world's own parameters.

        Packs of different splits never share a world. Raises `ConfigError` where no such world exists.
        """

    def categories(self) -> tuple[str, ...]:
        """The kinds of packs that a curriculum can tell apart, at least one."""
        return (self.name,)

    def of_category(self, category: str) -> "TextEnv":
        """This environment, drawing packs of one of its categories only; it plays all packs that the whole one plays."""
        assert category in self.categories(), f"{category} is none of {self.categories()}"
        return self

    def words(self) -> tuple[str, ...]:
        """Every word that the compact protocol can show or ask for; a tiny policy's vocabulary is built from it."""
        return ()

    def changed(self, pack: Pack, at: int, seed: int) -> Pack:
        """The pack with another hidden rule from task `at` on (1 <= at < N), drawn from `seed`.

        All that shows (labels, names, sizes, tasks' goals where they still make sense) stays, so that nothing but the rule
        shows the change. Its split stays.
        """
        expected = "a world whose hidden rule can change"
        raise ConfigError("data.env", type(self).__name__, expected, "Choose another world.")

    def hidden_rule(self, pack: Pack) -> str:
        """What the pack hides, as text: the same for packs that hide the same (of the first task, if it changes).

        Intervals resample packs by it. By default the pack's id: no two packs hide the same.
        """
        return pack.id

    def without_world_memory(self) -> "TextEnv":
        """This world with the same packs, carrying nothing from task to task; itself where it never does."""
        return self

    def reference(self, kind: Reference, pack: Pack) -> TextPolicy:
        """A policy that plays this pack for comparison."""
        raise NotImplementedError(f"{type(self).__name__} has no {kind} reference")

    def demonstrator(self, pack: Pack) -> Demonstrator:
        """A teacher for this pack, for the warm start."""
        raise NotImplementedError(f"{type(self).__name__} has no demonstrator; a warm start needs one")
