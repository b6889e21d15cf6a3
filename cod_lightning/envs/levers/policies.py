"""Play with levers: pull the one that is known to give the colour, else one that is not known."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.facts import FactTable, QuotingDials
from cod_lightning.envs.levers.wording import COLOURS, LeverWording
from cod_lightning.envs.players import TablePlay
from cod_lightning.types import Message


@dataclass(frozen=True)
class LeverPlay(TablePlay):
    """Pulls."""

    wording: LeverWording
    dials: QuotingDials = QuotingDials()  # noqa: RUF009  (frozen)

    @property
    def table(self) -> FactTable:
        return self.wording.facts

    def any_answer(self, messages: Sequence[Message], rng: random.Random) -> str:
        return self.wording.respond(rng.choice(COLOURS), rng.choice(self.table.codes))

    def answer(self, messages: Sequence[Message], known: Mapping[int, str], rng: random.Random) -> str:
        goal = self.wording.goal_of(messages[1].content)
        by_colour = {colour: code for code, colour in known.items()}
        unknown = [code for code in self.table.codes if code not in known] or list(self.table.codes)
        code = by_colour.get(goal) or rng.choice(unknown)
        return self.dials.said(self.wording.respond(goal, code), known, code)
