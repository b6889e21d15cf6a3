"""Mechanisms around another one: the base that passes everything on, and a first state that is not empty."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from cod_lightning.contexts.base import (
    ContextEntry,
    ContextMechanism,
    Entries,
    Prepared,
    Scripted,
    Spoken,
    Stored,
    TokenView,
    UpdateDialogue,
    beside,
)
from cod_lightning.errors import ConfigError
from cod_lightning.types import Episode, Message

W = TypeVar("W", bound="WrappedContext")


class WrappedScripted(Scripted[W]):
    """As the mechanism inside; what is adopted is its state."""

    def adopt(self, note: str) -> Any:
        return self.of.around(beside(self.of.inside, Scripted).adopt(note))

    def asks(self, messages: Sequence[Message]) -> bool:
        return beside(self.of.inside, Scripted).asks(messages)

    def write(self, note: str, messages: Sequence[Message]) -> str:
        return beside(self.of.inside, Scripted).write(note, messages)

    def respond(self, act: Spoken, note: Spoken, messages: Sequence[Message]) -> str:
        return beside(self.of.inside, Scripted).respond(act, note, messages)


class WrappedEntries(Entries[W]):
    """Those of the state inside."""

    def entries(self, state: Any) -> tuple[ContextEntry, ...]:
        return beside(self.of.inside, Entries).entries(self.of.of(state))


class WrappedStored(Stored[W]):
    """The state inside."""

    def dump(self, state: Any) -> str:
        return beside(self.of.inside, Stored).dump(self.of.of(state))

    def load(self, text: str) -> Any:
        return self.of.around(beside(self.of.inside, Stored).load(text))


class WrappedContext(ContextMechanism):
    """Answers everything with the mechanism `inside`, whose companions it has; a subclass overrides what it changes.

    Its states are those of the mechanism inside, unless it overrides `around` and `of`. What is dumped is the state inside, so that
    an agent may go on with the wrapper or without it.
    """

    companions = (WrappedScripted, WrappedEntries, WrappedStored)

    def __init__(self, inside: ContextMechanism) -> None:
        self.inside, self.updates = inside, inside.updates
        self.State = type(self.around(inside.empty()))  # pyright: ignore[reportAttributeAccessIssue]

    def around(self, inner: Any) -> Any:
        """The state between tasks that holds this state of the mechanism inside."""
        return inner

    def of(self, state: Any) -> Any:
        """The state of the mechanism inside."""
        return state

    def empty(self) -> Any:
        return self.around(self.inside.empty())

    def text(self, state: Any) -> str:
        return self.inside.text(self.of(state))

    def update(self, state: Any, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        found = yield from self.inside.update(self.of(state), rules, episode, tokens)
        return replace(found, state=self.around(found.state))

    def feedback(self, state: Any, episode: Episode) -> Any:
        return self.around(self.inside.feedback(self.of(state), episode))

    def prepare(self, state: Any, rules: str, observation: str) -> Prepared:
        return self.inside.prepare(state, rules, observation)


class StartedContext(WrappedContext):
    """Another mechanism, whose first task does not begin with an empty context.

    What is blanked in an evaluation, and what an agent starts with, is that first context: `text(empty())` is not empty.

    Args:
        inside: The mechanism that keeps, shows and rewrites the context.
        first: File with what the first task begins with: a state as `evolve` leaves it (`*.json`), or a text in the words of the
            context; null: what `inside` begins with.

    Raises:
        ConfigError: For a file that cannot be read. `DataError` for a state of another mechanism.
    """

    def __init__(self, inside: ContextMechanism, first: str | None = None) -> None:
        super().__init__(inside)
        self.first = inside.empty() if first is None else self._read(Path(first))

    def empty(self) -> Any:
        return self.first

    def _read(self, path: Path) -> Any:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("data.context.first", path, f"a file of text ({error})", "`evolve` writes one.") from None
        if path.suffix == ".json":
            return beside(self, Stored).load(text)
        return beside(self, Scripted).adopt(text.strip())
