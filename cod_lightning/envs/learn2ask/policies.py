"""Play in the clinic by what is known of the protocol, and of prepared dialogues with their labels."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.base import Demonstrator
from cod_lightning.envs.learn2ask.clinic import Clinics, content_of
from cod_lightning.envs.learn2ask.compact import CompactClinic
from cod_lightning.envs.learn2ask.items import ITEMS
from cod_lightning.envs.learn2ask.natural import NaturalClinic, NaturalRecords
from cod_lightning.envs.learn2ask.protocol import Facts
from cod_lightning.envs.learn2ask.records import RecordTask
from cod_lightning.envs.learn2ask.wording import Scores
from cod_lightning.envs.players import Play, kept_or_any
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
        return kept_or_any(self.wording.facts.items, facts, accuracy, rng, (True, False, None))

    def junk(self, rng: random.Random) -> Facts:
        return {name: rng.random() < 0.5 for name in self.wording.facts.items}

    def write(self, facts: Facts, messages: Sequence[Message] = ()) -> str:
        return self.wording.facts.write(facts)


_NOTE = "- Ask while something that matters is unknown; stop once enough is known."


@dataclass(frozen=True)
class RecordOracle(Demonstrator):
    """Knows what is right in each dialogue, and says it with probability `skill`, else stops or asks for any item of the clinic."""

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
        return self.wording.respond(rng.choice(ITEMS).title if rng.random() < 0.5 else None)

    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return _NOTE
