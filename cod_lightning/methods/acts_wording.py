"""Two wordings of a notebook that is edited within tasks, for language models and for tiny policies."""

import re
from collections.abc import Sequence
from typing import Any

from cod_lightning.contexts.hint_wording import fenced, system_text
from cod_lightning.methods.notebook_wording import CompactNotebook, NaturalNotebook
from cod_lightning.types import Message


class NaturalActs(NaturalNotebook):
    """For language models."""

    start = "--- Start of memory act ---"
    end = "--- End of memory act ---"
    marks = (re.escape(start), re.escape(end))
    _left = re.compile(r"^Acts left in this task: (\d+)\.$", re.MULTILINE)

    def shown_notebook(
        self, rules: str, entries: Sequence[tuple[int, str]], left: int, refused: Sequence[str], unread: str
    ) -> str:
        """System text of a solve episode: rules, how to act, entries."""
        listed = [f"[{number}] {text}" for number, text in entries]
        parts = [
            rules,
            "## Your memory\nYou keep numbered entries, which also go to the next tasks in this environment. Instead of an answer "
            "you may give a memory act: operations, one a line, between these two lines, each exactly once, and nothing after the "
            f"second. The environment does not see it, and you answer afterwards.\n{self.start}\nadd: TEXT\n"
            f"replace NUMBER: TEXT\ndelete NUMBER\n{self.end}",
            f"Acts left in this task: {left}.",
            "Entries:\n" + ("\n".join(listed) or "(none)"),
        ]
        if refused:
            parts.append(f"Refused in your latest act:\n{fenced(chr(10).join(refused))}")
        if unread:
            parts.append(f"Feedback on the task before this one:\n{fenced(unread)}")
        return system_text(parts, self.response_limit)

    def acts_left(self, messages: Sequence[Message]) -> int:
        """As the system text says."""
        found = self._left.findall(messages[0].content)
        return int(found[0]) if found else 0

    def shown(self, messages: Sequence[Message]) -> list[tuple[int, str]]:
        """Of an update; in a task, the lines of the system text."""
        if self.asks(messages[0].content):
            return super().shown(messages)
        own = messages[0].content.rpartition("\n\nEntries:\n")[2].partition("\n\n")[0]
        return [(int(found[1]), found[2]) for line in own.splitlines() if (found := self._entry.fullmatch(line))]


class CompactActs(CompactNotebook):
    """For tiny policies: `RULES acts=2 FEEDBACK #1 FACT #2 FACT`.

    An act is `<memory> add FACT ; delete #2 </memory>`.
    """

    start, end = "<memory>", "</memory>"
    marks = (r"(^|\s)(#\d+|;|acts=\d+|</?memory>|notebook|add|replace|delete|keep)(\s|$)",)

    def shown_notebook(
        self, rules: str, entries: Sequence[tuple[int, str]], left: int, refused: Sequence[str], unread: str
    ) -> str:
        """System text of a solve episode; a closed vocabulary has no words for what was refused."""
        listed = [f"#{number} {text}" for number, text in entries]
        return " ".join(part for part in (rules, f"acts={left}", unread, *listed) if part)

    def acts_left(self, messages: Sequence[Message]) -> int:
        """As the system text says."""
        found = re.findall(r"(?:^|\s)acts=(\d+)(?=\s|$)", messages[0].content)
        return int(found[0]) if found else 0


ACTS_WORDINGS: dict[str, Any] = {"natural": NaturalActs, "compact": CompactActs}
