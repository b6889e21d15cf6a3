"""Policies without a model for prepared dialogues: at random, by habit, or with the labels."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.base import Demonstrator, TextPolicy
from cod_lightning.envs.learn2ask.items import ITEMS
from cod_lightning.envs.learn2ask.natural import NaturalRecords, patient_lines
from cod_lightning.envs.learn2ask.records import RecordTask
from cod_lightning.types import Message, Pack

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
        """Stop from that length on, else ask for the most frequent item that has not come up literally."""
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
