"""Who steers without a model: at random, with perfect memory, or as a teacher that knows the plant."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from cod_lightning.envs.base import Demonstrator, TextPolicy
from cod_lightning.envs.control.belief import Belief, noisy
from cod_lightning.envs.control.evidence import told_by
from cod_lightning.envs.control.fused import CompactControl
from cod_lightning.envs.control.laws import LAWS
from cod_lightning.envs.control.wording import ControlWording
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.types import Message


@dataclass(frozen=True)
class RandomControlPolicy(TextPolicy):
    """A proportional-derivative law with gains, and a sign, at random; notes nothing."""

    wording: ControlWording

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        if isinstance(self.wording, CompactControl):
            return self.wording.respond(rng.choice(LAWS))
        x, v = self.wording.symbols_in(messages[0].content)[:2]
        sign, pull, brake = rng.choice(("", "-")), rng.uniform(0.1, 1.0), rng.uniform(0.0, 2.0)
        return self.wording.respond(f"{sign}({pull:.2f}*({x}_target - {x}) - {brake:.2f}*{v})")

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        symbols = self.wording.symbols_in("\n".join(message.content for message in messages))
        return self.wording.write(self.wording.ranges.prior, symbols)


@dataclass(frozen=True)
class ScriptedControlPolicy(TextPolicy):
    """Perfect memory: the optimum for the numbers that it noted, else a careful law.

    What it notes is a least-squares estimate from the tables, with standard errors. Without a note it uses the earlier law
    that the world may show, if that settles the numbers.
    """

    wording: ControlWording

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        task, earlier = self.wording.seen(messages)
        belief = self.wording.noted(messages[0].content)
        if not belief.knows_b and earlier:
            belief = told_by(earlier, self.wording.ranges, task.symbols)
        return self.wording.chosen(belief, task, rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return _note(self.wording, messages, self.wording.recorded(messages))


@dataclass(frozen=True)
class ControlOracle(TextPolicy):
    """Knows the two numbers."""

    wording: ControlWording
    truth: Belief

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.chosen(self.truth, self.wording.seen(messages)[0], rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return _note(self.wording, messages, self.truth)


@dataclass(frozen=True)
class ControlTeacher(Demonstrator):
    """Shows the protocol; notes only part of what it saw."""

    wording: ControlWording
    truth: Belief
    symbols: tuple[str, ...]
    dials: TeacherDials

    def context(self, rng: random.Random) -> str:
        draw, dials = rng.random(), self.dials
        if draw >= dials.context_true + dials.context_junk:
            return ""
        accuracy = dials.context_accuracy if draw < dials.context_true else 0.0
        return self.wording.write(noisy(self.truth, self.wording.ranges, accuracy, rng), self.symbols)

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        trusting = rng.random() < self.dials.follow
        task, _ = self.wording.seen(messages)
        belief = self.wording.noted(messages[0].content) if trusting else self.wording.ranges.prior
        return self.wording.chosen(belief, task, rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        belief = self.wording.recorded(messages)
        return _note(self.wording, messages, noisy(belief, self.wording.ranges, self.dials.note_accuracy, rng))


def _note(wording: ControlWording, messages: Sequence[Message], belief: Belief) -> str:
    symbols = wording.symbols_in("\n".join(message.content for message in messages))
    return wording.write(belief, symbols)
