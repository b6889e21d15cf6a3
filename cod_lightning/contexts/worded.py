"""What mechanisms share that speak with a policy in one of two wordings: for language models, or for tiny policies."""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

from cod_lightning.contexts.base import ContextMechanism, Scripted, TokenView, Words
from cod_lightning.hostile_text import hidden_letter
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
        return self.of.wording.words()


class WordedContext(ContextMechanism):
    """A mechanism with a wording."""

    companions = (WordedScripted, WordedWords)

    wording: Any
    """`natural` or `compact`, as `protocol` says."""

    def __init__(self, penalty: float = 0.0, response_limit: int | None = None) -> None:
        self.penalty, self.response_limit = penalty, response_limit


def text_between(response: str, start: str, end: str) -> tuple[str, str]:
    """(the text between the marks, "") or ("", which rule was broken): each occurs once, in order, with nothing after the second.

    >>> text_between("Well. << a b >>", "<<", ">>")
    ('a b', '')
    """
    if reason := not_once(response, start, end):
        return "", reason
    inside, found, after = response.partition(start)[2].partition(end)
    if not found:
        return "", f"'{end}' does not come after '{start}'"
    return ("", f"there is text after '{end}'") if after.strip() else (inside.strip(), "")


def not_once(response: str, *marks: str) -> str:
    """Which of the marks does not occur once; empty for none."""
    for mark in marks:
        if (count := len(re.findall(f"(?={re.escape(mark)})", response))) != 1:  # two lines of dashes can share one
            return f"'{mark}' occurs {count} times; expected exactly once"
    return ""


def unkept(what: str, text: str, tokens: TokenView) -> str:
    """Why a text that the policy wrote cannot be kept; empty where it can."""
    if token := tokens.control_token(text):
        return f"the {what} has the control token '{token}'"
    letter = hidden_letter(text)
    return f"the {what} has the letter {letter}, which no reader sees" if letter else ""
