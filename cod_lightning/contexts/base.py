"""The contract of a context mechanism: what an agent carries from task to task, how it is shown, and how it is rewritten.

The state is a record that the mechanism owns; no other code reads its fields. Within a lifecycle it goes round like this:

    empty -> prepare -> (the task: on_turn, before_turn, on_turn, ...) -> feedback -> update -> prepare -> ...

What happens within a task, scripted notes, a vocabulary, entries, storage and budgets are companions beside the mechanism, named in
`companions`; `beside(mechanism, InTask)` finds one. Every method is pure: it returns a new state and keeps nothing. Whatever a
method raises costs the lifecycle that called it, and is counted as `ContextFailure`. To add a mechanism: one file with one
subclass, chosen with `data.context.class_path`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from cod_lightning.companions import beside as beside
from cod_lightning.errors import DataError
from cod_lightning.types import Episode, Message


class TextState(Struct, frozen=True):
    """The state of a mechanism whose context is one text."""

    text: str = ""


class ContextEntry(Struct, frozen=True):
    """One piece of a context, which reports follow from the episode that it came with to the one that removed it."""

    key: str
    """What it is known by as long as it is kept, whatever becomes of its text: no other has it in the same state."""
    text: str
    """Without what the mechanism counts about it, such as its worth."""
    shown: bool = True
    """Whether the latest task was shown it, or chose it."""
    gone: str = ""
    """Why the mechanism removed it in the latest episode; empty for what is there."""


class TokenView(Protocol):
    """What a mechanism may ask about the policy's tokenizer."""

    def control_token(self, text: str) -> str:
        """The first control token in the text, which must not occur inside a context; empty if there is none."""
        ...

    def count(self, text: str) -> int:
        """Tokens that the text takes in a prompt."""
        ...


class Prepared(Struct, frozen=True):
    """What a solve episode begins with."""

    system: str
    """The system text: the environment's rules, and as much of the context as the task is shown."""
    state: Any
    """The state from here on; the mechanism may note what it has shown."""


class Answer(Struct, frozen=True, kw_only=True):
    """One response of the policy in an update dialogue."""

    response: str
    cut_off: bool
    """Whether the response ended without a stop token."""


class ContextUpdate(Struct, frozen=True, kw_only=True):
    """What came of an update."""

    state: Any
    """The state that the next task gets."""
    reward: float
    """For the form of the answers, at most 0."""
    parsed: bool
    reason: str = ""
    """What was refused, and why; empty if nothing was."""


class Intervention(Struct, frozen=True):
    """What a mechanism does with a response inside a task."""

    state: Any
    reply: str | None = None
    """The next user message, in place of the environment's; the environment then does not see the response. None: it does."""
    action: str | None = None
    """What the environment sees in place of the response, such as the response without what was meant for the mechanism."""


class History(Struct, frozen=True):
    """The dialogue in which a task goes on, in place of what was said so far."""

    state: Any
    messages: tuple[Message, ...]
    """The whole prompt, its last message the user's. Where it only adds that one to what was said, it goes on from it; otherwise a
    new rendering begins a new segment of the same episode."""


UpdateDialogue = Generator[Sequence[Message] | str, Answer, ContextUpdate]
"""Yields the opening messages, then the text of each further user message; is sent each answer; returns the result."""

Spoken = Callable[[Sequence[Message]], str]
"""From a dialogue to text."""


class ContextMechanism(ABC):
    """How a context is kept, shown and rewritten."""

    State: ClassVar[type[Struct]] = TextState
    """The record; frozen, and made of values that JSON has."""
    version: ClassVar[int] = 1
    """Of the state's form; raise it when stored states of before would be misread."""
    updates: bool = True
    """Whether the policy rewrites the context. False: a program's updates do not take place, and `feedback` alone, which
    sees every task, changes the state."""
    companions: "tuple[type[BesideMechanism[Any]], ...]" = ()
    """Classes that stand beside the mechanism; the first of a kind counts."""

    def empty(self) -> Any:
        """The state before the first task."""
        return self.State()

    @abstractmethod
    def text(self, state: Any) -> str:
        """The state for readers, one entry a line; an empty string where there is nothing in it."""

    @abstractmethod
    def prepare(self, state: Any, rules: str, observation: str) -> Prepared:
        """The system text of a solve episode in an environment of these rules, whose task begins with this observation."""

    @abstractmethod
    def update(self, state: Any, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        """The dialogue that rewrites the context, given the solve episode that has just ended.

        `episode` has the turns as text, the reward, the feedback, and as `context_before` the text of the context.
        """

    def feedback(self, state: Any, episode: Episode) -> Any:
        """The state after a task, whose reward is in `episode`; called once for every solve episode that has a reward."""
        return state


M = TypeVar("M", bound=ContextMechanism)


class BesideMechanism(Generic[M]):
    """What stands beside a mechanism: made around it when it is asked for, and keeps nothing of its own.

    Each kind says what holds for a mechanism without one.

    Args:
        of: The mechanism.
    """

    def __init__(self, of: M) -> None:
        self.of = of


class InTask(BesideMechanism[M]):
    """What a mechanism does within a task. By default nothing."""

    def on_turn(self, state: Any, response: str, tokens: TokenView) -> Intervention | None:
        """Called with each response of a solve episode before the environment sees it; None leaves the turn alone."""
        return None

    def before_turn(self, state: Any, rules: str, messages: Sequence[Message], tokens: TokenView) -> History | None:
        """Called before each turn of a solve episode but the first, with the dialogue up to the user's next message; None goes on
        with it as it is.

        `messages[0]` is the system text, `messages[1]` the task's first observation, unless the mechanism has put others there.
        """
        return None

    def hooks(self) -> frozenset[str]:
        """Which of `on_turn` and `before_turn` do anything; one around another mechanism has those of the one inside, too."""
        names = ("on_turn", "before_turn")
        return frozenset(one for one in names if getattr(type(self), one) is not getattr(InTask, one))


class Scripted(BesideMechanism[M]):
    """How policies without a model write and read contexts: references, oracles, demonstrators. By default they cannot."""

    def adopt(self, note: str) -> Any:
        """The state that holds this note, which a scripted policy, an oracle or a demonstrator has written."""
        raise NotImplementedError(f"{type(self.of).__name__} takes no notes of policies without a model")

    def asks(self, messages: Sequence[Message]) -> bool:
        """Whether this dialogue is one of `update`."""
        raise NotImplementedError(f"{type(self.of).__name__} takes no notes of policies without a model")

    def write(self, note: str, messages: Sequence[Message]) -> str:
        """A well-formed answer in this dialogue after which the context holds the note."""
        raise NotImplementedError(f"{type(self.of).__name__} takes no notes of policies without a model")

    def respond(self, act: Spoken, note: Spoken, messages: Sequence[Message]) -> str:
        """The response in this dialogue of a task; `act` and `note` say what the policy does and what it notes in any."""
        return act(messages)


class Words(BesideMechanism[M]):
    """The words of a closed vocabulary, for tiny policies. By default none."""

    def words(self) -> tuple[str, ...]:
        """Every word that the compact wording can show or ask for (see `envs.base.Vocabulary`)."""
        return ()


class Entries(BesideMechanism[M]):
    """A state piece by piece, for reports."""

    def entries(self, state: Any) -> tuple[ContextEntry, ...]:
        """The pieces, and what the mechanism itself removed from it in the latest episode.

        By default a piece is a line of `text`, and is known by what it says: one whose words change is then another one.
        """
        lines = (line for line in self.of.text(state).splitlines() if line.strip())
        return tuple(ContextEntry(line, line) for line in dict.fromkeys(lines))


class Budget(BesideMechanism[M]):
    """Whether a policy has room for the mechanism. By default it has."""

    def check(self, window: int, max_new_tokens: int) -> None:
        """Raise `ConfigError` for budgets that leave no room in a prompt with its response, or in a response (tokens)."""


class Stored(BesideMechanism[M]):
    """States as text, for agents that outlive their process."""

    def dump(self, state: Any) -> str:
        """The state as JSON with the mechanism and its version."""
        kept = {"mechanism": type(self.of).__name__, "version": self.of.version, "state": state}
        return msgspec.json.encode(kept, order="sorted").decode()

    def load(self, text: str) -> Any:
        """`dump` back again. Raises `DataError` for the state of another mechanism or version, and for a damaged one."""
        try:
            kept = msgspec.json.decode(text)
            found = kept["mechanism"], kept["version"]
            expected = type(self.of).__name__, self.of.version
            if found == expected:
                return msgspec.convert(kept["state"], self.of.State)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(
                f"a context's state is damaged ({error}). `context revert` goes back to an earlier one."
            ) from error
        raise DataError(
            f"a context's state is of {found[0]} version {found[1]}; data.context is {expected[0]} version {expected[1]}. "
            "Use the context mechanism and the version that wrote it."
        )
