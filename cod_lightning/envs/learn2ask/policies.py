"""Who works in the clinic without a model: at random, with perfect memory, or as a teacher that knows the protocol."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.base import Demonstrator, TextPolicy
from cod_lightning.envs.facts import TeacherDials
from cod_lightning.envs.learn2ask.clinic import Clinics, content_of
from cod_lightning.envs.learn2ask.protocol import Facts, demonstrated, noisy
from cod_lightning.envs.learn2ask.scoring import Fusion, Scores
from cod_lightning.envs.learn2ask.wording import ClinicWording
from cod_lightning.types import Message


@dataclass(frozen=True)
class Play:
    """What all of them know: sizes of the clinic, how rewards are fused, and how to speak."""

    clinics: Clinics
    fusion: Fusion
    wording: ClinicWording

    def answer(self, observation: str, known: Mapping[str, bool], rng: random.Random) -> str:
        """The response of highest expected reward in this task; ties at random."""
        told = self.wording.told_in(observation)
        weights = self.clinics.weights(told, known)
        values: dict[str | None, float] = {None: 0.0}
        values.update({name: 0.0 for name in self.clinics.items if name not in told})
        for required, weight in weights.items():
            missing = tuple(name for name in required if name not in told)
            if not missing:
                values[None] += weight * Scores(action=1, content=1, format=1).fused(self.fusion)
                continue
            for name in values:
                if name is not None:
                    scores = Scores(action=1, content=content_of((name,), missing), format=1)
                    values[name] += weight * scores.fused(self.fusion)
        best = max(values.values())
        return self.wording.respond(rng.choice([name for name, value in values.items() if value > best - 1e-9]))

    def known(self, messages: Sequence[Message]) -> Facts:
        """What rules and context state; of contradictions the later one."""
        return self.wording.facts.known(messages[0].content)

    def recorded(self, messages: Sequence[Message]) -> Facts:
        """What the dialogue of an update episode states: the old context, overruled by what the feedback shows."""
        before, after = self.wording.learnt_from("\n".join(message.content for message in messages))
        return self.wording.facts.merge(before, after)


@dataclass(frozen=True)
class RandomClinicPolicy(TextPolicy):
    """Any item, or a stop, all equally likely; notes nothing."""

    play: Play

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.play.wording.respond(rng.choice([None, *self.play.clinics.items]))

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.play.wording.facts.write({})


@dataclass(frozen=True)
class ScriptedClinicPolicy(TextPolicy):
    """Perfect memory; the answer of highest expected reward, by Bayes over all protocols that agree with what is known.

    Exact but for one thing: it leaves out that a split holds only some of the dialogues. With nothing known it goes by how
    often each protocol would give such a dialogue.
    """

    play: Play

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.play.answer(messages[1].content, self.play.known(messages), rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.play.wording.facts.write(self.play.recorded(messages))


@dataclass(frozen=True)
class ClinicOracle(TextPolicy):
    """Knows the protocol."""

    play: Play
    truth: Mapping[str, bool]

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.play.answer(messages[1].content, self.truth, rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.play.wording.facts.write(self.truth)


@dataclass(frozen=True)
class ClinicTeacher(Demonstrator):
    """Shows the protocol of answers: plays like the scripted policy, trusts the context mostly, notes only part of what it saw."""

    play: Play
    truth: Mapping[str, bool]
    dials: TeacherDials

    def context(self, rng: random.Random) -> str:
        return demonstrated(self.play.wording.facts, self.truth, self.dials, rng)

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        known = self.play.known(messages) if rng.random() < self.dials.follow else {}
        return self.play.answer(messages[1].content, known, rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        table = self.play.wording.facts
        return table.write(noisy(table, self.play.recorded(messages), self.dials.note_accuracy, rng))
