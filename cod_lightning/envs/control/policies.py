"""Play with a plant: the best law for what is known of it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cod_lightning.envs.control.evidence import implied_by
from cod_lightning.envs.control.fused import LAWS, CompactControl
from cod_lightning.envs.control.plant import EXACT, PlantBelief
from cod_lightning.envs.control.sentences import NaturalControl
from cod_lightning.envs.players import Play
from cod_lightning.types import Message


@dataclass(frozen=True)
class ControlPlay(Play[PlantBelief]):
    """The optimum for the numbers that are known, else a careful law.

    What it notes is a least-squares estimate from the tables, with standard errors.
    """

    wording: NaturalControl | CompactControl
    goes_by_earlier: bool = True
    """Whether, without a note, it uses the earlier law that the world may show, if that settles the numbers."""

    @property
    def nothing(self) -> PlantBelief:
        return self.wording.parameters.prior

    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        if isinstance(self.wording, CompactControl):
            return self.wording.respond(rng.choice(LAWS))
        sign, pull, brake = rng.choice(("", "-")), rng.uniform(0.1, 1.0), rng.uniform(0.0, 2.0)
        return self.wording.respond(f"{sign}({pull:.2f}*(x_target - x) - {brake:.2f}*v)")

    def known(self, messages: Sequence[Message], *, trust_context: bool) -> PlantBelief:
        earlier = self.wording.seen(messages)[1]
        belief = self.wording.noted(messages[0].content) if trust_context else self.nothing
        if self.goes_by_earlier and not belief.knows_b and earlier:
            return implied_by(earlier, self.wording.parameters)
        return belief

    def answer(self, messages: Sequence[Message], known: PlantBelief, rng: random.Random) -> str:
        return self.wording.chosen(known, self.wording.seen(messages)[0], rng)

    def recorded(self, messages: Sequence[Message]) -> PlantBelief:
        return self.wording.recorded(messages)

    def noisy(self, facts: PlantBelief, accuracy: float, rng: random.Random) -> PlantBelief:
        """Each number as believed with that probability, else unknown (one time in five) or anything, and sure of it."""
        a, b = self.wording.parameters.draw(rng)
        prior = self.nothing
        if rng.random() >= accuracy:
            unknown = rng.random() < 0.2
            facts = replace(facts, a=prior.a if unknown else a, a_error=prior.a_error if unknown else EXACT)
        if rng.random() >= accuracy:
            unknown = rng.random() < 0.2
            facts = replace(facts, b=0.0 if unknown else b, b_error=prior.b_error if unknown else EXACT)
        return facts

    def write(self, facts: PlantBelief, messages: Sequence[Message] = ()) -> str:
        return self.wording.write(facts)
