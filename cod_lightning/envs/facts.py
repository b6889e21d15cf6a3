"""Hidden facts "code = value" that a pack shares: how they are written down, read back, and demonstrated.

FrozenLake's four directions and the four levers are both such tables. A context of either world is a list of facts, in a
compact form (`1=up 2=? 3=left 4=?`) and in a natural one (`- Direction 1 leads up`), and one parser reads both.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cod_lightning.envs.base import Unchanging
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import Share

NUMBERS = ("1", "2", "3", "4")
UNKNOWN = "?"
STATES = "(?: moves|:| gives| moved you| leads)"
"""Between a code and its value in a sentence, as a regular expression."""


@dataclass(frozen=True)
class FactTable:
    """What codes there are, what they may stand for, and how a fact is spelled."""

    noun: str
    """Of a code in natural text, as in "Direction 1"."""
    values: tuple[str, ...]
    """Possible meanings; every code 1..len(values) has one of its own."""
    compact: bool
    names: tuple[str, ...] = NUMBERS
    """Of the codes in sentences, as in `- Move B: up` or `Move B leads up`."""
    verb: str = ":"
    """Between a code and its value where a sentence notes a fact. With that of observations a note repeats what was seen."""

    def __post_init__(self) -> None:
        if len(self.names) != len(self.values):
            expected = f"as many as there are values, {len(self.values)}, since each code has one of its own and no two share one"
            raise ConfigError("FactTable.names", self.names, expected, "Name every code, or leave out values.")
        stated = dict(zip(self.codes, self.values, strict=True))
        if (read := self.parse(self.write(stated))) != stated:
            lost = next(code for code in self.codes if read.get(code) != stated[code])
            more = "names of one digit each" if self.compact else "a verb such as ' gives', ' leads' or ' moves'"
            expected, fact = f"values of letters, digits and _, and {more}", f"{self.names[lost - 1]}={stated[lost]}"
            raise ConfigError("FactTable", fact, expected, "Else what is noted cannot be read back.")

    @property
    def codes(self) -> tuple[int, ...]:
        """1, 2, ..."""
        return tuple(range(1, len(self.values) + 1))

    def parse(self, text: str) -> dict[int, str]:
        """Facts stated in the text, in the order of each code's last statement, which wins; unknown ones are left out."""
        sentence = rf"{self.noun} ({'|'.join(map(re.escape, self.names))}){STATES} (\w+)"
        found: dict[int, str] = {}
        for name, value in re.findall(r"\b(\d)=(\w+)" if self.compact else sentence, text, flags=re.ASCII):
            if value in self.values and name in self.names:
                code = self.names.index(name) + 1
                found.pop(code, None)
                found[code] = value
        return found

    def write(self, facts: Mapping[int, str], *, both_ways: bool = False) -> str:
        """A context with a line, or a word, for every code; a line says a fact from its value, too, with `both_ways`."""
        shown = [(name, facts.get(code, UNKNOWN)) for code, name in enumerate(self.names, start=1)]
        if self.compact:
            return " ".join(f"{name}={value}" for name, value in shown)

        def line(name: str, value: str) -> str:
            if value == UNKNOWN:
                return f"- {self.noun} {name}: unknown"
            return f"- {self.noun} {name}{self.verb} {value}" + (f", {self._back(name, value)}" if both_ways else "")

        return "\n".join(line(name, value) for name, value in shown)

    def quote(self, response: str, value: str, code: int, known: Mapping[int, str], question: str = "") -> str:
        """A response that wants the value and answers with that code, after the known fact that it goes by.

        In sentences the fact is said from its value, as notes say it with `both_ways`, and the question takes the place of the
        response's own words if there is one.

        >>> FactTable("Lever", ("red", "blue"), compact=True, names=("1", "2")).quote("red <answer>Lever_2</answer>", "red", 2, {})
        'red 2=? <answer>Lever_2</answer>'
        >>> table = FactTable("Lever", ("red", "blue"), compact=False, names=("1", "2"))
        >>> table.quote("I want red. <answer>Lever 2</answer>", "red", 2, {2: "red"})
        'I want red, so red Lever 2 <answer>Lever 2</answer>'
        """
        thought, mark, answer = response.partition("<answer>")
        if self.compact:
            return f"{thought}{code}={known.get(code, UNKNOWN)} {mark}{answer}"
        name, known_as = self.names[code - 1], value if known.get(code) == value else f"{value} unknown"
        return f"{question or thought.rstrip(' .')}, {self._back(name, known_as)} {mark}{answer}"

    def _back(self, name: str, value: str) -> str:
        """A fact from its value. The code follows at once, since what a copier repeats is what followed; and between the value and
        its repetition stands one word, since a policy that begins as a copier sees two words back."""
        return f"so {value} {self.noun} {name}"

    def complete(self, facts: dict[int, str], *, infers: bool = True) -> dict[int, str]:
        """Facts without contradictions (of two codes with one value the later statement wins); the last one may be inferred."""
        known: dict[int, str] = {}
        for code, value in reversed(facts.items()):
            if value not in known.values():
                known[code] = value
        if infers and len(known) == len(self.values) - 1:
            (code,) = set(self.codes) - set(known)
            (value,) = set(self.values) - set(known.values())
            known[code] = value
        return known

    def words(self) -> tuple[str, ...]:
        """Every compact fact."""
        return tuple(f"{code}={value}" for code in self.codes for value in (*self.values, UNKNOWN))


@dataclass(frozen=True, kw_only=True)
class TeacherDials:
    """How good demonstrations are."""

    note_accuracy: Share = 0.5
    """Probability that a fact is noted as the record has it (unknown where it says nothing); else anything is noted."""
    context_accuracy: Share = 0.5
    """Probability that a fact of a demonstrated context is the truth; else anything."""
    context_true: Share = 0.5
    """Share of demonstrated tasks whose context is written with `context_accuracy`."""
    context_junk: Share = 0.2
    """Share of demonstrated tasks whose context is random; the rest have none."""
    follow: Share = 0.95
    """Probability of trusting the context at a turn."""
    __deepcopy__ = Unchanging.__deepcopy__
    """Not inherited: with a base class it would have to be written with `class_path` in configs."""

    def described(self) -> str:
        """What demonstrations with these dials contain, in words for a report."""
        writer = (
            f"a writer that notes each fact as the record has it with probability {self.note_accuracy:g}: the "
            "skill in weak form, which training strengthens."
            if self.note_accuracy
            else "a writer whose notes have nothing to do with what was seen."
        )
        return (
            "The demonstrations of the warm start already contained the protocol, a player that plays sensibly and trusts "
            f"its context at {self.follow:.0%} of its turns, and {writer}"
        )

    def __post_init__(self) -> None:
        if self.context_true + self.context_junk > 1 + 1e-9:
            expected = f"at most 1 - context_true ({self.context_true}), since both are shares of the same tasks"
            raise ConfigError("data.env.teacher.context_junk", self.context_junk, expected, "Lower one of them.")


@dataclass(frozen=True, kw_only=True)
class QuotingDials(TeacherDials):
    """How good demonstrations are, of a world whose facts are a table."""

    quotes: bool = False
    """Whether a player repeats the fact that it goes by before its answer (`red 3=red <answer>Lever_3</answer>`, for a try
    `red 3=? <answer>Lever_3</answer>`), so that a policy can say a fact that it sees before it has ever noted one. In sentences
    notes say each fact from its value, too (`- Lever 3 gives red, so red Lever 3`), and the player repeats that
    after the question (`The wanted colour is red, so red Lever 3`, for a try `so red unknown Lever 3`): a policy finds by
    copying what it looks for."""

    fills: Literal["any", "stated", "unknown"] = "any"
    """Entries of a note where it does not go by the record: any has a random value or unknown; stated the same, but unknown for
    codes of which the dialogue states nothing; unknown says unknown of all of them, as a writer that seldom notes anything."""

    infers: bool = True
    """Whether players, notes and demonstrated contexts conclude the last fact from all others. A policy learns to look up by
    copying, and what is concluded stands nowhere: where it is demonstrated, too, looking up is learnt late or not at all."""

    context_gaps: Share = 0.0
    """Probability that a demonstrated context, where it is true, does not know a fact yet, as between first and last task."""

    def described(self) -> str:
        quoted = " The player named the fact that it went by before each answer." if self.quotes else ""
        filled = (
            " It noted something, if only at random, of just what the record was about."
            if self.fills == "stated"
            else " What it did not note as the record has it, it called unknown."
            if self.fills == "unknown"
            else ""
        )
        stated = "" if self.infers else " Neither player nor notes concluded a fact that nothing stated."
        return super().described() + filled + quoted + stated
