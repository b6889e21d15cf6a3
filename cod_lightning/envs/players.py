"""Players of a world without a model, from what the world says of play in it: random, scripted, oracle, teacher."""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from cod_lightning.envs.base import Demonstrator, TextPolicy
from cod_lightning.envs.facts import UNKNOWN, FactTable, QuotingDials, TeacherDials
from cod_lightning.types import Message, Role

F = TypeVar("F")
"""What can be known of a hidden rule."""
N = TypeVar("N")
"""What there are facts about."""
V = TypeVar("V")
"""A fact."""


class Play(ABC, Generic[F]):
    """How to answer in a world, and how what is known of its hidden rule is read, spoilt and written."""

    @property
    def nothing(self) -> F:
        """No knowledge, where it is a mapping."""
        return cast(F, {})

    @abstractmethod
    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        """A legal answer at random."""

    @abstractmethod
    def known(self, messages: Sequence[Message], *, trust_context: bool) -> F:
        """What the dialogue of a task states, with or without its context."""

    @abstractmethod
    def answer(self, messages: Sequence[Message], known: F, rng: random.Random) -> str:
        """A good answer with that knowledge."""

    @abstractmethod
    def recorded(self, messages: Sequence[Message]) -> F:
        """What the dialogue of an update episode states: the old context, overruled by what was seen."""

    @abstractmethod
    def noisy(self, facts: F, accuracy: float, rng: random.Random) -> F:
        """Each fact kept with that probability, else anything in its place."""

    def earlier(self, truth: F, rng: random.Random) -> F:
        """What of the truth a demonstrated context may know, as an earlier task might have left it."""
        return truth

    def junk(self, rng: random.Random) -> F:
        """Knowledge that is made up."""
        return self.noisy(self.nothing, 0.0, rng)

    def proposal(self, messages: Sequence[Message], rng: random.Random) -> str:
        """A task that may be proposed, each as likely, where this dialogue asks for one; empty elsewhere."""
        return ""

    @abstractmethod
    def write(self, facts: F, messages: Sequence[Message] = ()) -> str:
        """A context that holds these facts; `messages` ask for it, unless it is demonstrated."""

    def blank(self, messages: Sequence[Message]) -> str:
        """What a player notes that never notes anything."""
        return self.write(self.nothing, messages)


@dataclass(frozen=True)
class _Player(TextPolicy, Generic[F]):
    """Proposes as its play does."""

    play: Play[F]

    def propose(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.play.proposal(messages, rng)


@dataclass(frozen=True)
class RandomPlayer(_Player[F]):
    """Any legal answer; notes nothing."""

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.play.any_answer(messages, rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.play.blank(messages)


@dataclass(frozen=True)
class ScriptedPlayer(_Player[F]):
    """Perfect memory; goes by all that is known."""

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.play.answer(messages, self.play.known(messages, trust_context=True), rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.play.write(self.play.recorded(messages), messages)


@dataclass(frozen=True)
class OraclePlayer(_Player[F]):
    """Knows the hidden rule."""

    truth: F

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.play.answer(messages, self.truth, rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.play.write(self.truth, messages)


@dataclass(frozen=True)
class Teacher(_Player[F], Demonstrator):
    """Shows the protocol: plays sensibly, trusts the context mostly, and notes only part of what it saw."""

    truth: F
    dials: TeacherDials

    def context(self, rng: random.Random) -> str:
        draw = rng.random()
        if draw < self.dials.context_true:
            earlier = self.play.earlier(self.truth, rng)
            return self.play.write(self.play.noisy(earlier, self.dials.context_accuracy, rng))
        if draw < self.dials.context_true + self.dials.context_junk:
            return self.play.write(self.play.junk(rng))
        return ""

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        trusting = rng.random() < self.dials.follow
        return self.play.answer(messages, self.play.known(messages, trust_context=trusting), rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        recorded = self.play.recorded(messages)
        return self.play.write(self.play.noisy(recorded, self.dials.note_accuracy, rng), messages)


def kept_or_any(
    names: Iterable[N], facts: Mapping[N, V], accuracy: float, rng: random.Random, values: Sequence[V | None]
) -> dict[N, V]:
    """Of each name its fact, or that there is none, with that probability, else any of the values (None: no fact)."""
    drawn = {name: facts.get(name) if rng.random() < accuracy else rng.choice(values) for name in names}
    return {name: fact for name, fact in drawn.items() if fact is not None}


@dataclass(frozen=True)
class TablePlay(Play[Mapping[int, str]]):
    """Play in a world whose hidden rule is a table of codes."""

    wording: Any
    """Has the table `facts`, and `respond(value, code)`, a response that wants the value and answers with the code."""
    dials: QuotingDials
    """How a teacher fills in its notes."""

    @property
    def table(self) -> FactTable:
        """How facts are spelled."""
        return self.wording.facts

    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.respond(rng.choice(self.table.values), rng.choice(self.table.codes))

    def known(self, messages: Sequence[Message], *, trust_context: bool) -> Mapping[int, str]:
        """Effects seen in this dialogue, and the context's facts that do not contradict them."""
        seen: dict[int, str] = {}
        for message in messages[2:]:
            if message.role is Role.USER:
                seen.update(self.table.parse(message.content))
        noted = self.table.parse(messages[0].content) if trust_context else {}
        agreeing = {c: v for c, v in noted.items() if c not in seen and v not in seen.values()}
        return self.table.complete({**seen, **agreeing}, infers=self.dials.infers)

    def recorded(self, messages: Sequence[Message]) -> Mapping[int, str]:
        stated = self.table.parse("\n".join(message.content for message in messages))
        return self.table.complete(stated, infers=self.dials.infers)

    def noisy(self, facts: Mapping[int, str], accuracy: float, rng: random.Random) -> Mapping[int, str]:
        """Each entry as in `facts` (unknown where they have none) with that probability, else as `QuotingDials.fills` has it."""

        def other(code: int) -> str:
            unknown = self.dials.fills == "unknown" or (self.dials.fills == "stated" and code not in facts)
            return UNKNOWN if unknown else rng.choice((*self.table.values, UNKNOWN))

        return {code: facts.get(code, UNKNOWN) if rng.random() < accuracy else other(code) for code in self.table.codes}

    def earlier(self, truth: Mapping[int, str], rng: random.Random) -> Mapping[int, str]:
        """All, or with gaps those that are left and what a player concludes from them."""
        gaps = self.dials.context_gaps
        if not gaps:
            return truth
        return self.table.complete(
            {code: truth[code] for code in truth if rng.random() >= gaps}, infers=self.dials.infers
        )

    def junk(self, rng: random.Random) -> Mapping[int, str]:
        return {code: rng.choice(self.table.values) for code in self.table.codes}

    def write(self, facts: Mapping[int, str], messages: Sequence[Message] = ()) -> str:
        return self.table.write(facts, both_ways=self.dials.quotes)

    def respond(self, value: str, code: int, known: Mapping[int, str], question: str = "") -> str:
        """A response that wants the value and answers with the code, after question and what is known of it where players quote."""
        response = self.wording.respond(value, code)
        return self.table.quote(response, value, code, known, question) if self.dials.quotes else response
