"""Operations that a policy writes between two marks, and what a text that it wants to keep may not hold."""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from cod_lightning.contexts.base import TokenView
from cod_lightning.contexts.hint_wording import fenced, record, suggested_length
from cod_lightning.contexts.worded import Wording, text_between, unkept
from cod_lightning.types import Episode, Message, Role

KEEP = "keep"
"""The operation that changes nothing."""
Asked = tuple[Message, Message]
"""System and user message of an update."""


class OperationsWording(Wording, ABC):
    """How an update is asked for operations, and how these are read and refused."""

    start: str
    end: str
    marks: tuple[str, ...]
    """Patterns that no text which is kept may contain."""

    def __init__(self, most: int, response_limit: int | None) -> None:
        """`most` entries, or skills, are kept; responses are suggested to have at most `response_limit` tokens (null: no word)."""
        self.most, self.response_limit = most, response_limit

    @abstractmethod
    def operation(self, text: str) -> Any:
        """One operation as it is read; `malformed` where it cannot be."""

    @abstractmethod
    def spelled(self, operation: Any) -> str:
        """One operation in this wording."""


class NaturalOperations(OperationsWording):
    """An operation a line, between two marker lines; a line of a note is a part, without a bullet before it."""

    def read(self, response: str) -> tuple[list[Any], str]:
        """The operations, or why there are none to be read."""
        text, reason = text_between(response, self.start, self.end)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return [self.operation(line) for line in lines], reason if lines or reason else "there is no operation"

    def write(self, operations: Sequence[Any]) -> str:
        """A well-formed response with these operations."""
        lines = [self.spelled(operation) for operation in operations] or [KEEP]
        return "\n".join(["Here is what I change.", self.start, *lines, self.end])

    def asking(
        self, about: Sequence[str], sections: Mapping[str, Sequence[str]], rules: str, episode: Episode
    ) -> Asked:
        """The opening of an update: what it is about; what there is in sections of lines, of which all but the first
        are left out where they are empty, and the record of the task."""
        shown = [
            f"# {title}\n{fenced(chr(10).join(lines)) if lines else '(none)'}" for title, lines in sections.items()
        ]
        kept = [one for one, lines in zip(shown, sections.values(), strict=True) if lines or one is shown[0]]
        user = [*kept, *record(rules, episode), "Now write the operations."]
        system = [*about, *suggested_length(self.response_limit)]
        return Message(Role.SYSTEM, "\n\n".join(system)), Message(Role.USER, "\n\n".join(user))

    def form(self, *forms: str) -> str:
        """How the operations of these forms are written, for the prompt of an update."""
        listed = "\n".join([*forms, KEEP])
        return (
            "Think briefly first. Then write one operation a line between these two lines, each exactly once, and nothing after "
            f"the second:\n{self.start}\n{listed}\n{self.end}\n`keep` changes nothing; use it where no other operation is needed."
        )

    def parts(self, note: str) -> list[str]:
        """The note as what is kept apart: its entries, or its skills."""
        lines = [re.sub(r"^\s*[-*]\s+", "", line).strip() for line in note.splitlines()]
        return list(dict.fromkeys(line for line in lines if line))


class CompactOperations(OperationsWording):
    """Operations of single words, divided by ` ; `, between two marks; a word of a note is a part."""

    start, end = "<ops>", "</ops>"

    def read(self, response: str) -> tuple[list[Any], str]:
        words = response.split()
        if (
            words[:1] != [self.start]
            or words[-1:] != [self.end]
            or words.count(self.start) + words.count(self.end) != 2
        ):
            return [], f"expected {self.start} OPERATIONS {self.end} and nothing else"
        parts = [part.strip() for part in " ".join(words[1:-1]).split(" ; ") if part.strip()]
        return list(map(self.operation, parts)), "" if parts else "there is no operation"

    def write(self, operations: Sequence[Any]) -> str:
        return f"{self.start} {' ; '.join(map(self.spelled, operations)) or KEEP} {self.end}"

    def parts(self, note: str) -> list[str]:
        return list(dict.fromkeys(note.split()))


def fault(text: str, tokens: TokenView, marks: Sequence[str], what: str) -> str:
    """Why an entry cannot be kept: it is empty, or has control characters, what `unkept` names, or the wording's own marks
    (patterns). Empty where it can."""
    if not text.strip():
        return f"the {what} is empty"
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text):
        return f"the {what} has a control character"
    marked = any(re.search(mark, text) for mark in marks)
    return unkept(what, text, tokens) or (f"the {what} has a mark of the context's own" if marked else "")
