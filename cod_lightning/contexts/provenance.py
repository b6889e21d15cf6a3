"""Where the entries of a context come from, before the text of each entry that is shown.

Natural: `[handed over before the first task]`, `[written after task 3, which was solved]`; compact: `@given`, `@3 @solved`. What
an entry itself says of the kind is refused when it is written, and left out when it is shown.
"""

import re

from cod_lightning.errors import ConfigError

_GAP = r"[\s\u200b-\u200d\u2060\ufeff]+"
"""What a model reads as a space, those without width included."""
_NATURAL = r"(?i)\[ ?(?:handed over before the first task|written after task \d+, which was (?:not )?solved) ?\]"
_PATTERNS = {
    "natural": _NATURAL.replace(" ?", f"(?:{_GAP})?").replace(" ", _GAP),
    "compact": r"(?:^|(?<=\s))@(?:given|solved|unsolved|\d+)(?=\s|$)",
}
_MOST = 32
"""Tasks with a word of their own in compact wording; later ones have that of the last."""


class Provenance:
    """How it is shown; nothing at all unless it is switched on.

    Args:
        shown: Whether it is.
        protocol: natural or compact.

    Raises:
        ConfigError: For a value of `shown` that is no truth value, with the key `data.context.provenance`.
    """

    def __init__(self, shown: bool, protocol: str) -> None:
        if not isinstance(shown, bool):
            raise ConfigError("data.context.provenance", shown, "true or false", "false is the default.")
        self.shown, self.natural, self._pattern = shown, protocol == "natural", _PATTERNS[protocol]
        self.marks = (self._pattern,) if shown else ()
        """Patterns that no entry may hold."""

    def of(self, task: int, solved: bool | None) -> str:
        """Of an entry that was written after this task (0-based), which was solved or not; None: it was handed over, or that is not
        known. Empty where it is not shown.

        >>> Provenance(True, "natural").of(2, True), Provenance(True, "compact").of(0, None)
        ('[written after task 3, which was solved]', '@given')
        """
        if not self.shown:
            return ""
        if solved is None:
            return "[handed over before the first task]" if self.natural else "@given"
        if self.natural:
            return f"[written after task {task + 1}, which was {'' if solved else 'not '}solved]"
        return f"@{min(task + 1, _MOST)} @{'solved' if solved else 'unsolved'}"

    def before(self, text: str, task: int, solved: bool | None) -> str:
        """The text with it before."""
        return f"{self.of(task, solved)} {self.without(text)}" if self.shown else text

    def without(self, text: str) -> str:
        """The text without what spells it.

        >>> Provenance(True, "compact").without("@given 3=gold @2 @solved")
        '3=gold'
        """
        if not self.shown or not re.search(self._pattern, text):
            return text
        text = re.sub(self._pattern, " ", text)
        if re.search(self._pattern, text):  # one stood within another
            text = re.sub(r"[\[\]]", " ", text)
        return " ".join(text.split())

    def words(self) -> tuple[str, ...]:
        """Of the compact wording."""
        shown = self.shown and not self.natural
        return ("@given", "@solved", "@unsolved", *(f"@{task}" for task in range(1, _MOST + 1))) if shown else ()


HIDDEN = Provenance(False, "natural")
