"""Mechanisms around another one: the base that passes everything on, and a first state that is not empty."""

from operator import attrgetter
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cod_lightning.contexts.base import ContextEntry, ContextMechanism, TokenView, UpdateDialogue
from cod_lightning.errors import ConfigError
from cod_lightning.types import Episode


def _of_inside(name: str) -> Any:
    """A method that is the one of the mechanism inside."""
    return property(attrgetter(f"inside.{name}"))


class WrappedContext(ContextMechanism):
    """Answers everything with the mechanism `inside`; a subclass overrides what it changes.

    Its states are those of the mechanism inside, unless it overrides `around` and `of`. What is dumped is the state inside, so that
    an agent may go on with the wrapper or without it.
    """

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

    def entries(self, state: Any) -> tuple[ContextEntry, ...]:
        return self.inside.entries(self.of(state))

    def adopt(self, note: str) -> Any:
        return self.around(self.inside.adopt(note))

    def update(self, state: Any, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        found = yield from self.inside.update(self.of(state), rules, episode, tokens)
        return replace(found, state=self.around(found.state))

    def feedback(self, state: Any, episode: Episode) -> Any:
        return self.around(self.inside.feedback(self.of(state), episode))

    def hooks(self) -> frozenset[str]:
        own = {one for one in super().hooks() if getattr(type(self), one) is not getattr(WrappedContext, one)}
        return self.inside.hooks() | own

    prepare = _of_inside("prepare")
    asks = _of_inside("asks")
    write = _of_inside("write")
    on_turn = _of_inside("on_turn")
    before_turn = _of_inside("before_turn")
    respond = _of_inside("respond")
    check = _of_inside("check")
    words = _of_inside("words")

    def dump(self, state: Any) -> str:
        return self.inside.dump(self.of(state))

    def load(self, text: str) -> Any:
        return self.around(self.inside.load(text))


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
        return self.load(text) if path.suffix == ".json" else self.adopt(text.strip())
