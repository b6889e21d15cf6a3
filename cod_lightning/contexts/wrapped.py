"""Mechanisms around another one: the base that passes everything on, and a first state that is not empty."""

from pathlib import Path
from typing import Any

from cod_lightning.contexts.base import ContextMechanism, Prepared, Scripted, Stored, TokenView, UpdateDialogue, beside
from cod_lightning.errors import ConfigError
from cod_lightning.files import readable
from cod_lightning.types import Episode


class WrappedContext(ContextMechanism):
    """Answers everything with the mechanism `inside`, whose states and companions it has; a subclass overrides what it changes.

    An agent may so go on with the wrapper or without it.
    """

    def __init__(self, inside: ContextMechanism) -> None:
        self.inside, self.updates = inside, inside.updates
        self.State = inside.State  # pyright: ignore[reportAttributeAccessIssue]

    def empty(self) -> Any:
        return self.inside.empty()

    def text(self, state: Any) -> str:
        return self.inside.text(state)

    def prepare(self, state: Any, rules: str, observation: str) -> Prepared:
        return self.inside.prepare(state, rules, observation)

    def update(self, state: Any, rules: str, episode: Episode, tokens: TokenView) -> UpdateDialogue:
        return self.inside.update(state, rules, episode, tokens)

    def feedback(self, state: Any, episode: Episode) -> Any:
        return self.inside.feedback(state, episode)


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
            text = readable(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("data.context.first", path, f"a file of text ({error})", "`evolve` writes one.") from None
        if path.suffix == ".json":
            return beside(self, Stored).load(text)
        return beside(self, Scripted).adopt(text.strip())
