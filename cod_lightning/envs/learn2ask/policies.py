"""Play in the clinic by what is known of the protocol, and of prepared dialogues: at random, by habit, or with the labels."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.base import Demonstrator, TextPolicy
from cod_lightning.envs.learn2ask.clinic import Clinics, content_of
from cod_lightning.envs.learn2ask.compact import CompactClinic
from cod_lightning.envs.learn2ask.items import ITEMS
from cod_lightning.envs.learn2ask.natural import NaturalClinic, NaturalRecords, patient_lines
from cod_lightning.envs.learn2ask.protocol import Facts
from cod_lightning.envs.learn2ask.records import RecordTask
from cod_lightning.envs.learn2ask.wording import Scores
from cod_lightning.envs.players import Play
from cod_lightning.types import Message, Pack


@dataclass(frozen=True)
class ClinicPlay(Play[Facts]):
    """The answer of highest expected reward, by Bayes over all protocols that agree with what is known; ties at random.

    Exact but for one thing: it leaves out that a split holds only some of the dialogues. With nothing known it weighs
    protocols by how often each would draw such a dialogue.
    """

    clinics: Clinics
    wording: NaturalClinic | CompactClinic

    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.respond(rng.choice([None, *self.clinics.items]))

    def answer(self, messages: Sequence[Message], known: Facts, rng: random.Random) -> str:
        mentioned = self.wording.mentioned_in(messages[1].content)
        weights = self.clinics.weights(mentioned, known)
        values: dict[str | None, float] = {None: 0.0}
        values.update({name: 0.0 for name in self.clinics.items if name not in mentioned})
        for required, weight in weights.items():
            missing = tuple(name for name in required if name not in mentioned)
            if not missing:
                values[None] += weight * Scores(action=1, content=1, format=1).points
                continue
            for name in values:
                if name is not None:
                    values[name] += weight * Scores(action=1, content=content_of((name,), missing), format=1).points
        best = max(values.values())
        return self.wording.respond(rng.choice([name for name, value in values.items() if value > best - 1e-9]))

    def known(self, messages: Sequence[Message], *, trust_context: bool) -> Facts:
        return self.wording.facts.known(messages[0].content) if trust_context else {}

    def recorded(self, messages: Sequence[Message]) -> Facts:
        before, after = self.wording.cut_at_feedback("\n".join(message.content for message in messages))
        return self.wording.facts.merge(before, after)

    def noisy(self, facts: Facts, accuracy: float, rng: random.Random) -> Facts:
        items = self.wording.facts.items
        any_fact = (True, False, None)
        drawn = {name: facts.get(name) if rng.random() < accuracy else rng.choice(any_fact) for name in items}
        return {name: fact for name, fact in drawn.items() if fact is not None}

    def junk(self, rng: random.Random) -> Facts:
        return {name: rng.random() < 0.5 for name in self.wording.facts.items}

    def write(self, facts: Facts, messages: Sequence[Message] = ()) -> str:
        return self.wording.facts.write(facts)


_MOST_LINES = 50
_NOTE = "- Ask while something that matters is unknown; stop once enough is known."


@dataclass(frozen=True)
class RandomRecordPolicy(TextPolicy):
    """Stops in one of two tasks, else asks for any item of the synthetic clinic."""

    wording: NaturalRecords

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.respond(rng.choice(ITEMS).title if rng.random() < 0.5 else None)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return _NOTE


@dataclass(frozen=True)
class Habits:
    """What holds for most decision points: when to stop, and what is missing."""

    stop_from: int
    """Number of lines of the patient from which on stopping is right more often than not."""
    common: tuple[str, ...]
    """Missing items, the most frequent first."""

    @classmethod
    def of(cls, records: Sequence[RecordTask]) -> "Habits":
        """Counted from records, which must be those of the training split."""
        balance = [0] * (_MOST_LINES + 1)
        tally: dict[str, int] = {}
        for record in records:
            lines = min(_MOST_LINES, sum(role == "user" for role, _ in record.turns))
            balance[lines] += 1 if record.label == "stop" else -1
            for item in record.missing:
                tally[item] = tally.get(item, 0) + 1
        gains = [sum(balance[start:]) for start in range(_MOST_LINES + 2)]
        return cls(gains.index(max(gains)), tuple(sorted(tally, key=lambda item: (-tally[item], item))[:100]))


@dataclass(frozen=True)
class ScriptedRecordPolicy(TextPolicy):
    """Goes by the habits of the training split; there is no hidden rule to remember, so its note says just these."""

    wording: NaturalRecords
    habits: Habits

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        observation = messages[1].content
        if len(patient_lines(observation)) >= self.habits.stop_from or not self.habits.common:
            return self.wording.respond(None)
        text = observation.lower()
        fresh = (item for item in self.habits.common if item.rpartition(":")[2].strip().lower() not in text)
        return self.wording.respond(next(fresh, self.habits.common[0]))

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return f"{_NOTE}\n- It is mostly time to stop once the patient has said {self.habits.stop_from} things."


@dataclass(frozen=True)
class RecordOracle(Demonstrator):
    """Knows what is right in each dialogue, and says it with probability `skill`, else plays at random."""

    wording: NaturalRecords
    truth: Mapping[str, str | None]
    """Of an observation: an item that is missing, or None for a stop."""
    skill: float = 1.0

    @classmethod
    def of(cls, wording: NaturalRecords, pack: Pack, skill: float = 1.0) -> "RecordOracle":
        """For the tasks of a pack."""
        specs = [task.spec for task in pack.tasks if isinstance(task.spec, RecordTask)]
        return cls(wording, {wording.observation(spec): next(iter(spec.missing), None) for spec in specs}, skill)

    def context(self, rng: random.Random) -> str:
        return _NOTE if rng.random() < 0.5 else ""

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        if messages[1].content in self.truth and rng.random() < self.skill:
            return self.wording.respond(self.truth[messages[1].content])
        return RandomRecordPolicy(self.wording).act(messages, rng)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return _NOTE
