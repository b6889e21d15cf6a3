"""Who plays the small instance without a model: at random, with perfect memory, or as a teacher that knows the equation."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.base import Demonstrator, TextPolicy
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.pde.verdicts import DICTIONARIES, PROBES
from cod_lightning.types import Message, Role

_BEST_PLACE = {1: "x=.2,t=0", 2: "x=.2,t=.04", 3: "x=.2,t=.04", 4: "x=.2,t=.04"}
"""By the level of the amplitude; measured: it leaves fewest equations."""


def verdicts_in(text: str) -> dict[str, bool]:
    """Equations with a verdict; `no` wins over `ok`.

    >>> verdicts_in("u-u3:ok -u:no -u:ok")
    {'u-u3': True, '-u': False}
    """
    found: dict[str, bool] = {}
    for word, verdict in re.findall(r"(?<!\S)(\S{1,8}):(ok|no)(?!\S)", text):
        found[word] = found.get(word, True) and verdict == "ok"
    return found


def joined(told: Mapping[str, bool], seen: Mapping[str, bool], listed: Sequence[str]) -> dict[str, bool]:
    """What was told and what was seen; where both together leave no equation, only what was seen.

    >>> joined({"-u": False}, {"-u": True, "-u3": False}, ("-u", "-u3"))
    {'-u': True, '-u3': False}
    """
    both = {word: told.get(word, True) and seen.get(word, True) for word in (*told, *seen)}
    return both if any(both.get(word, True) for word in listed) or not seen else dict(seen)


@dataclass(frozen=True)
class RandomCompact(TextPolicy):
    """Any probe, then any equation; notes nothing."""

    listed: tuple[str, ...]

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return _answer(f"f={rng.choice(self.listed)}" if _probed(messages) else rng.choice(list(PROBES)))

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return ""


@dataclass(frozen=True)
class ScriptedCompact(TextPolicy):
    """Perfect memory; judges what is not judged yet, answers an equation that survived."""

    listed: tuple[str, ...]

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return play(self.listed, messages, verdicts_in(messages[0].content), rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return _written(self.listed, _record(messages, self.listed))


@dataclass(frozen=True)
class CompactOracle(TextPolicy):
    """Knows the equation."""

    listed: tuple[str, ...]
    truth: str

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        """The next answer."""
        return play(self.listed, messages, self._known, rng, sure=True)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        """The truth."""
        return _written(self.listed, self._known)

    @property
    def _known(self) -> dict[str, bool]:
        return {word: word == self.truth for word in self.listed}


@dataclass(frozen=True)
class CompactTeacher(Demonstrator):
    """Shows the protocol; notes each verdict as the record has it only with some probability."""

    listed: tuple[str, ...]
    truth: str
    dials: TeacherDials

    def context(self, rng: random.Random) -> str:
        """Verdicts of which some are true, junk, or none."""
        draw, listed = rng.random(), self.listed
        if draw < self.dials.context_true:
            judged = [word for word in listed if rng.random() < 0.6]
            true = {word: word == self.truth or rng.random() < 0.2 for word in judged}
            return _written(listed, _noisy(listed, true, self.dials.context_accuracy, rng))
        if draw < self.dials.context_true + self.dials.context_junk:
            return _written(listed, _noisy(listed, {}, 0.0, rng))
        return ""

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        """The next answer."""
        told = verdicts_in(messages[0].content) if rng.random() < self.dials.follow else {}
        return play(self.listed, messages, told, rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Each verdict as the record has it with probability `note_accuracy`, else anything."""
        return _written(self.listed, _noisy(self.listed, _record(messages, self.listed), self.dials.note_accuracy, rng))


def play(
    listed: Sequence[str], messages: Sequence[Message], told: Mapping[str, bool], rng: random.Random, sure: bool = False
) -> str:
    """A probe of equations not yet judged, or of those that survived; then the answer: a survivor, else one not judged."""
    seen: dict[str, bool] = {}
    for message in messages[2:]:
        if message.role is Role.USER:
            seen = {**seen, **verdicts_in(message.content)}
    known = told if sure else joined(told, seen, listed)
    if not _probed(messages):
        level = re.search(r"amp=(\d)", messages[1].content)
        place = _BEST_PLACE[int(level[1]) if level else 1]
        return _answer(f"{place}/{_dictionary(listed, known, rng)}")
    survivors = [word for word in listed if known.get(word)]
    left = survivors or [word for word in listed if word not in known] or list(listed)
    return _answer(f"f={rng.choice(left)}")


def _dictionary(listed: Sequence[str], known: Mapping[str, bool], rng: random.Random) -> str:
    """With most equations not judged, then with most survivors."""
    names = [name for name, words in DICTIONARIES.items() if set(words) & set(listed)]
    rng.shuffle(names)

    def worth(name: str) -> tuple[int, int]:
        words = [word for word in DICTIONARIES[name] if word in listed]
        return sum(word not in known for word in words), sum(known.get(word, False) for word in words)

    return max(names, key=worth)


def _noisy(listed: Sequence[str], verdicts: Mapping[str, bool], accuracy: float, rng: random.Random) -> dict[str, bool]:
    choices = {
        word: verdicts.get(word) if rng.random() < accuracy else rng.choice((True, False, None)) for word in listed
    }
    return {word: verdict for word, verdict in choices.items() if verdict is not None}


def _record(messages: Sequence[Message], listed: Sequence[str]) -> dict[str, bool]:
    """The old hint in the system text, and the verdicts of the task in what follows."""
    return joined(verdicts_in(messages[0].content), verdicts_in("\n".join(m.content for m in messages[1:])), listed)


def _probed(messages: Sequence[Message]) -> bool:
    return any(m.role is Role.USER and (verdicts_in(m.content) or m.content == "no-equation") for m in messages[1:])


def _written(listed: Sequence[str], verdicts: Mapping[str, bool]) -> str:
    marks = {True: "ok", False: "no", None: "?"}
    return " ".join(f"{word}:{marks[verdicts.get(word)]}" for word in listed)


def _answer(word: str) -> str:
    return f"<answer>{word}</answer>"
