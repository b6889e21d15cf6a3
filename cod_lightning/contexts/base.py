"""The contract of a context mechanism: how an agent writes down what it learnt and how it reads it later.

A mechanism is pure: text in, text out. To add one: one file with one subclass, chosen with `data.context.class_path`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from cod_lightning.types import Episode, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextUpdate:
    """What came of one rewrite."""

    context: str
    """The context that the next task gets."""
    reward: float
    """Format and length reward, in [-penalty, 0]."""
    parsed: bool
    reason: str = ""
    """Why it did not parse; empty if it did."""


class ContextMechanism(ABC):
    """How a context enters a solve prompt, how its rewrite is asked for, and how the answer is read."""

    @abstractmethod
    def empty(self) -> str:
        """The context before the first task."""

    @abstractmethod
    def inject(self, rules: str, context: str) -> str:
        """The system text of a solve episode: the world's rules, and the context where there is one."""

    @abstractmethod
    def ask(self, rules: str, episode: Episode) -> tuple[Message, ...]:
        """The dialogue that opens an update episode, given the solve episode that has just ended.

        `episode` carries the context before it, the turns as text, the reward and the feedback.
        """

    @abstractmethod
    def read(
        self, response: str, *, num_tokens: int, context_before: str, special_tokens: frozenset[str]
    ) -> ContextUpdate:
        """What the response says the context shall be.

        `num_tokens` is the response's length in tokens; `special_tokens` are the spellings that must not occur inside a
        context, because a later prompt would read them as control tokens.
        """

    @abstractmethod
    def asks(self, messages: Sequence[Message]) -> bool:
        """True if this dialogue is one that `ask` opened (so that a scripted policy knows what is wanted)."""

    @abstractmethod
    def write(self, context: str) -> str:
        """A well-formed response that `read` parses to this context; used by scripted policies and demonstrations."""

    def words(self) -> tuple[str, ...]:
        """Every word that the compact wording can show or ask for (see `TextEnv.words`)."""
        return ()
