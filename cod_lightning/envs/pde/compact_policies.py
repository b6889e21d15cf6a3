"""Play in the small instance: probes, and what their verdicts leave."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.pde.verdicts import DICTIONARIES, PROBES
from cod_lightning.envs.players import Play, kept_or_any
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


def joined(noted: Mapping[str, bool], seen: Mapping[str, bool], listed: Sequence[str]) -> dict[str, bool]:
    """What was noted and what was seen; where both together leave no equation, only what was seen.

    >>> joined({"-u": False}, {"-u": True, "-u3": False}, ("-u", "-u3"))
    {'-u': True, '-u3': False}
    """
    both = {word: noted.get(word, True) and seen.get(word, True) for word in (*noted, *seen)}
    return both if any(both.get(word, True) for word in listed) or not seen else dict(seen)


@dataclass(frozen=True)
class VerdictPlay(Play[Mapping[str, bool]]):
    """A probe of equations not yet judged, or of those that survived; then the answer: a survivor, else one not judged."""

    listed: tuple[str, ...]

    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        return _answer(f"f={rng.choice(self.listed)}" if _probed(messages) else rng.choice(list(PROBES)))

    def known(self, messages: Sequence[Message], *, trust_context: bool) -> Mapping[str, bool]:
        noted = verdicts_in(messages[0].content) if trust_context else {}
        seen: dict[str, bool] = {}
        for message in messages[2:]:
            if message.role is Role.USER:
                seen = {**seen, **verdicts_in(message.content)}
        return joined(noted, seen, self.listed)

    def answer(self, messages: Sequence[Message], known: Mapping[str, bool], rng: random.Random) -> str:
        if not _probed(messages):
            level = re.search(r"amp=(\d)", messages[1].content)
            place = _BEST_PLACE[int(level[1]) if level else 1]
            return _answer(f"{place}/{_dictionary(self.listed, known, rng)}")
        survivors = [word for word in self.listed if known.get(word)]
        left = survivors or [word for word in self.listed if word not in known] or list(self.listed)
        return _answer(f"f={rng.choice(left)}")

    def recorded(self, messages: Sequence[Message]) -> Mapping[str, bool]:
        seen = verdicts_in("\n".join(m.content for m in messages[1:]))
        return joined(verdicts_in(messages[0].content), seen, self.listed)

    def noisy(self, facts: Mapping[str, bool], accuracy: float, rng: random.Random) -> Mapping[str, bool]:
        return kept_or_any(self.listed, facts, accuracy, rng, (True, False, None))

    def earlier(self, truth: Mapping[str, bool], rng: random.Random) -> Mapping[str, bool]:
        """Some of the verdicts only, as probes give them."""
        judged = [word for word in truth if rng.random() < 0.6]
        return {word: truth[word] or rng.random() < 0.2 for word in judged}

    def write(self, facts: Mapping[str, bool], messages: Sequence[Message] = ()) -> str:
        marks = {True: "ok", False: "no", None: "?"}
        return " ".join(f"{word}:{marks[facts.get(word)]}" for word in self.listed)

    def blank(self, messages: Sequence[Message]) -> str:
        return ""


def _dictionary(listed: Sequence[str], known: Mapping[str, bool], rng: random.Random) -> str:
    """With most equations not judged, then with most survivors."""
    names = [name for name, words in DICTIONARIES.items() if set(words) & set(listed)]
    rng.shuffle(names)

    def worth(name: str) -> tuple[int, int]:
        words = [word for word in DICTIONARIES[name] if word in listed]
        return sum(word not in known for word in words), sum(known.get(word, False) for word in words)

    return max(names, key=worth)


def _probed(messages: Sequence[Message]) -> bool:
    return any(m.role is Role.USER and (verdicts_in(m.content) or m.content == "no-equation") for m in messages[1:])


def _answer(word: str) -> str:
    return f"<answer>{word}</answer>"
