"""Who pulls levers without a model: at random, with perfect memory, or as a teacher that knows the hidden order."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.base import Demonstrator, TextPolicy
from cod_lightning.envs.facts import QuotingDials, demonstrated_context, known_facts, recorded_facts
from cod_lightning.envs.levers.wording import COLOURS, LeverWording
from cod_lightning.types import Message


@dataclass(frozen=True)
class RandomLeverPolicy(TextPolicy):
    """Any lever; notes nothing."""

    wording: LeverWording

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.respond(rng.choice(COLOURS), rng.choice(self.wording.facts.codes))

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.facts.write({})


@dataclass(frozen=True)
class ScriptedLeverPolicy(TextPolicy):
    """Perfect memory; pulls the lever that is known to give the colour, else one that is not known."""

    wording: LeverWording

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return pull(self.wording, messages, known_facts(self.wording.facts, messages, trust_context=True), rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.facts.write(recorded_facts(self.wording.facts, messages))


@dataclass(frozen=True)
class LeverOracle(TextPolicy):
    """Knows the order."""

    wording: LeverWording
    truth: Mapping[int, str]

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return pull(self.wording, messages, self.truth, rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.facts.write(self.truth)


@dataclass(frozen=True)
class LeverTeacher(Demonstrator):
    """Shows the protocol; notes only part of what it saw."""

    wording: LeverWording
    truth: Mapping[int, str]
    dials: QuotingDials

    def context(self, rng: random.Random) -> str:
        return demonstrated_context(self.wording.facts, self.truth, self.dials, rng)

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        trusting = rng.random() < self.dials.follow
        known = known_facts(self.wording.facts, messages, trust_context=trusting)
        goal, code = chosen(self.wording, messages, known, rng)
        return self.dials.said(self.wording.respond(goal, code), known, code)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.dials.note(self.wording.facts, messages, rng)


def pull(wording: LeverWording, messages: Sequence[Message], known: Mapping[int, str], rng: random.Random) -> str:
    """An answer with the lever known to give the goal colour, else an unknown one."""
    return wording.respond(*chosen(wording, messages, known, rng))


def chosen(
    wording: LeverWording, messages: Sequence[Message], known: Mapping[int, str], rng: random.Random
) -> tuple[str, int]:
    """The goal colour, and that lever."""
    goal = wording.goal_of(messages[1].content)
    by_colour = {colour: code for code, colour in known.items()}
    unknown = [code for code in wording.facts.codes if code not in known] or list(wording.facts.codes)
    return goal, by_colour.get(goal) or rng.choice(unknown)
