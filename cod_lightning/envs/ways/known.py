"""Ways of which one in each slot works, known to work or not: noted as `scp=no rsync=ok`, and play with it."""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from cod_lightning.envs.players import Play
from cod_lightning.types import Message


def effect(way: str, *, ok: bool) -> str:
    """`scp=ok` or `scp=no`."""
    return f"{way}={'ok' if ok else 'no'}"


@dataclass(frozen=True, slots=True)
class KnownWays:
    """Ways known to work or not to; what is noted is as short as possible."""

    ways: ClassVar[Mapping[str, tuple[str, ...]]]
    """Of each slot; no way is in two of them."""
    effects: Mapping[str, bool]

    @classmethod
    def slot_of(cls, way: str) -> str:
        """The slot of a way; empty for what is none."""
        return next((slot for slot, ways in cls.ways.items() if way in ways), "")

    @classmethod
    def read(cls, texts: Sequence[str]) -> Self:
        """From effects in texts; the later statement wins, and a way that works rules out the others of its slot."""
        found: dict[str, bool] = {}
        for way, what in re.findall(r"(?<!\S)([\w-]+)=(ok|no)(?!\S)", " ".join(texts), flags=re.ASCII):
            slot = cls.slot_of(way)
            if not slot:
                continue
            if what == "ok" or all(found.get(other) is False for other in cls.ways[slot] if other != way):
                for other in cls.ways[slot]:
                    found.pop(other, None)
            found.pop(way, None)
            found[way] = what == "ok"
        return cls(found)

    def works(self, slot: str) -> str:
        """The way that is known to work, or the only one left."""
        left = [way for way in self.ways[slot] if self.effects.get(way) is not False]
        sure = [way for way in self.ways[slot] if self.effects.get(way)]
        return sure[-1] if sure else left[0] if len(left) == 1 else ""

    def open(self, slot: str) -> list[str]:
        """Ways that may work."""
        return [way for way in self.ways[slot] if self.effects.get(way) is not False] or list(self.ways[slot])

    def write(self) -> str:
        """For each slot the way that works, else those that do not."""
        shown: list[str] = []
        for slot, ways in self.ways.items():
            works = self.works(slot)
            shown += [effect(works, ok=True)] if works else [effect(w, ok=False) for w in ways if w in self.effects]
        return " ".join(shown)


@dataclass(frozen=True)
class WaysPlay(Play[KnownWays]):
    """The way that is known to work, else one that may; Bayes-optimal in each task."""

    kind: type[KnownWays]
    goals: Mapping[str, tuple[str, ...]]
    """The slots that each is about."""

    def slot(self, messages: Sequence[Message]) -> str:
        """The one that the next answer is about: the goal's first without a way that was seen to work."""
        met = self.kind.read([message.content for message in messages[2:]]).effects
        slots = self.goals[messages[1].content.removeprefix("goal=")]
        return next((slot for slot in slots if not any(met.get(way) for way in self.kind.ways[slot])), slots[-1])

    @staticmethod
    def respond(slot: str, way: str) -> str:
        """The slot as a thought, then the way as the answer."""
        return f"{slot} <answer>{way}</answer>"

    @property
    def nothing(self) -> KnownWays:
        return self.kind({})

    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        slot = self.slot(messages)
        return self.respond(slot, rng.choice(self.kind.ways[slot]))

    def known(self, messages: Sequence[Message], *, trust_context: bool) -> KnownWays:
        return self.kind.read([m.content for m in (*(messages[:1] if trust_context else ()), *messages[2:])])

    def answer(self, messages: Sequence[Message], known: KnownWays, rng: random.Random) -> str:
        slot = self.slot(messages)
        return self.respond(slot, known.works(slot) or rng.choice(known.open(slot)))

    def recorded(self, messages: Sequence[Message]) -> KnownWays:
        return self.kind.read([m.content for m in messages])

    def noisy(self, facts: KnownWays, accuracy: float, rng: random.Random) -> KnownWays:
        found: dict[str, bool] = {}
        for slot, ways in self.kind.ways.items():
            if rng.random() < accuracy:
                works = facts.works(slot)
                unusable = {way: False for way in ways if facts.effects.get(way) is False}
                found.update({works: True} if works else unusable)
            elif (way := rng.choice((*ways, ""))) != "":
                found[way] = True
        return self.kind(found)

    def junk(self, rng: random.Random) -> KnownWays:
        return self.kind({rng.choice(ways): True for ways in self.kind.ways.values()})

    def write(self, facts: KnownWays, messages: Sequence[Message] = ()) -> str:
        return facts.write()
