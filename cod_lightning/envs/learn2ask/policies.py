"""Play in the clinic: the best answer by what is known of the protocol."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from cod_lightning.envs.learn2ask.clinic import Clinics, content_of
from cod_lightning.envs.learn2ask.protocol import Facts
from cod_lightning.envs.learn2ask.wording import ClinicWording, Fusion, Scores
from cod_lightning.envs.players import Play
from cod_lightning.types import Message


@dataclass(frozen=True)
class ClinicPlay(Play[Facts]):
    """The answer of highest expected reward, by Bayes over all protocols that agree with what is known; ties at random.

    Exact but for one thing: it leaves out that a split holds only some of the dialogues. With nothing known it weighs
    protocols by how often each would draw such a dialogue.
    """

    clinics: Clinics
    fusion: Fusion
    wording: ClinicWording

    @property
    def nothing(self) -> Facts:
        return {}

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
                values[None] += weight * Scores(action=1, content=1, format=1).fused(self.fusion)
                continue
            for name in values:
                if name is not None:
                    scores = Scores(action=1, content=content_of((name,), missing), format=1)
                    values[name] += weight * scores.fused(self.fusion)
        best = max(values.values())
        return self.wording.respond(rng.choice([name for name, value in values.items() if value > best - 1e-9]))

    def known(self, messages: Sequence[Message], *, trust_context: bool) -> Facts:
        """What rules and context state; of contradictions the later one."""
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
