"""What mechanisms share that speak with a policy in one of two wordings: for language models, or for tiny policies."""

import math
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from cod_lightning.contexts.base import ContextMechanism, Scripted, Words
from cod_lightning.contexts.provenance import HIDDEN, Provenance
from cod_lightning.errors import ConfigError, check_at_least
from cod_lightning.types import Message, Role


class Wording:
    """How a mechanism speaks with a policy: prompts of solve and update episodes, and answers to them."""

    opens: str = ""
    """What the system text of an update episode begins with, and no other: a sentence for language models, so that no context can
    pass for it; a word for tiny policies, with which no world's rules may begin. Empty: there are no updates."""

    def asks(self, system: str) -> bool:
        """True if this system text opens an update episode."""
        return bool(self.opens) and f"{system} ".startswith(f"{self.opens} ")

    def words(self) -> tuple[str, ...]:
        """Words of a closed vocabulary, without those of the world; none where the wording is open."""
        return ()


W = TypeVar("W", bound="WordedContext")


class WordedScripted(Scripted[W]):
    """How scripted policies write a mechanism with a wording."""

    def asks(self, messages: Sequence[Message]) -> bool:
        return bool(messages) and messages[0].role is Role.SYSTEM and self.of.wording.asks(messages[0].content)


class WordedWords(Words[W]):
    """The words of a mechanism with a wording."""

    def words(self) -> tuple[str, ...]:
        return (*self.of.wording.words(), *self.of.provenance.words())


class WordedContext(ContextMechanism):
    """A mechanism with a wording."""

    companions = (
        WordedScripted,
        WordedWords,
    )

    wording: Any
    """`natural` or `compact`, as `protocol` says."""
    provenance: Provenance = HIDDEN
    """Of mechanisms whose entries can be shown with it."""

    def __init__(
        self, protocol: str, wordings: Collection[str], penalty: float = 0.0, response_limit: int | None = None
    ) -> None:
        check_protocol(protocol, wordings)
        if not (math.isfinite(penalty) and penalty >= 0):
            raise ConfigError("data.context.penalty", penalty, "finite and at least 0", "0.1 is the default.")
        check_at_least("data.context.response_limit", response_limit, 1, "Null says nothing.")
        self.penalty, self.response_limit = penalty, response_limit


def check_protocol(protocol: str, wordings: Collection[str]) -> None:
    """Raise `ConfigError` unless there is a wording of that name."""
    if protocol not in wordings:
        raise ConfigError("data.context.protocol", protocol, " or ".join(wordings), "Use natural for real models.")
