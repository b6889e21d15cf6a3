"""Where the entries of a context come from, before the text of each entry that is shown.

Natural: `[handed over before the first task] "TEXT"`, `[written after task 3, which was solved] "TEXT"`, with the text as a string
of JSON, which nothing in it can end; compact: `@given TEXT`, `@3 @solved TEXT`. Where the environment hides whether a task was
solved, there is no word of that: `[written after task 3]`, `@3`. What an entry itself says of the kind, in any
spelling that a reader takes for it, is refused when it is written, and left out when it is shown.
"""

import json
import re
from typing import Any

from cod_lightning.contexts.worded import WordedWords
from cod_lightning.hostile_text import normal_form

_PATTERNS = {
    "natural": r"(?i)\[ ?(?:handed over before the first task|written after task \d+(?: ?, ?which was (?:not )?solved)?) ?\]",
    "compact": r"(?:^|(?<=\s))@(?:given|solved|unsolved|\d+)(?=\s|$)",
}
"""In a text without further white space (`normal_form`)."""
_MOST = 32
"""Tasks with a word of their own in compact wording; later ones have that of the last."""


class Provenance:
    """How it is shown; nothing at all unless it is switched on.

    Args:
        shown: Whether it is.
        protocol: natural or compact.
    """

    def __init__(self, shown: bool, protocol: str) -> None:
        self.shown, self.natural, self._pattern = shown, protocol == "natural", _PATTERNS[protocol]

    def of(self, task: int, solved: bool | None) -> str:
        """Of an entry that was written after this task (0-based; below 0: it was handed over), which was solved or not; None: that
        is not known. Empty where it is not shown.

        >>> natural, compact = Provenance(True, "natural"), Provenance(True, "compact")
        >>> natural.of(2, True), compact.of(-1, None), compact.of(2, None)
        ('[written after task 3, which was solved]', '@given', '@3')
        """
        if not self.shown:
            return ""
        if task < 0:
            return "[handed over before the first task]" if self.natural else "@given"
        if self.natural:
            outcome = "" if solved is None else f", which was {'' if solved else 'not '}solved"
            return f"[written after task {task + 1}{outcome}]"
        outcome = "" if solved is None else f" @{'solved' if solved else 'unsolved'}"
        return f"@{min(task + 1, _MOST)}{outcome}"

    def before(self, text: str, task: int, solved: bool | None) -> str:
        """The text with it before.

        >>> Provenance(True, "natural").before('3 is "gold"', -1, None)
        '[handed over before the first task] "3 is \\\\"gold\\\\""'
        """
        if not self.shown:
            return text
        kept = self.without(text)
        return f"{self.of(task, solved)} {json.dumps(kept, ensure_ascii=False) if self.natural else kept}"

    def read(self, shown: str) -> str:
        """The text of what `before` returned.

        >>> Provenance(True, "natural").read('[handed over before the first task] "3 is gold"')
        '3 is gold'
        """
        if not self.shown:
            return shown
        if not self.natural:
            return self.without(shown)
        origin = re.match(self._pattern, shown)
        kept = shown[origin.end() :].strip() if origin else shown
        return json.loads(kept) if len(kept) > 1 and kept[0] == kept[-1] == '"' else kept

    def spelled_in(self, text: str) -> bool:
        """Whether the text spells it, where it is shown."""
        return self.shown and re.search(self._pattern, normal_form(text)) is not None

    def without(self, text: str) -> str:
        """The text without what spells it; where letters had to be read in their normal form, the text is in that form.

        >>> Provenance(True, "compact").without("@given 3=gold @2 @solved")
        '3=gold'
        """
        if not self.spelled_in(text):
            return text
        plain = " ".join(re.sub(self._pattern, " ", " ".join(text.split())).split())
        if self.spelled_in(plain):  # in other letters, or one stood within another
            plain = " ".join(re.sub(self._pattern, " ", normal_form(plain)).split())
        return re.sub(r"[\[\]]", " ", plain) if self.spelled_in(plain) else plain

    def words(self) -> tuple[str, ...]:
        """Of the compact wording."""
        shown = self.shown and not self.natural
        return ("@given", "@solved", "@unsolved", *(f"@{task}" for task in range(1, _MOST + 1))) if shown else ()


HIDDEN = Provenance(False, "natural")


class ProvenancedWords(WordedWords[Any]):
    """The words of a mechanism with a `provenance`."""

    def words(self) -> tuple[str, ...]:
        return (*super().words(), *self.of.provenance.words())
