"""A scripted policy of a world and a context mechanism, joined into one function from dialogue to response."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from cod_lightning.contexts.base import ContextMechanism, Scripted, beside
from cod_lightning.envs.base import TextPolicy
from cod_lightning.types import Message


@dataclass(frozen=True)
class Player:
    """Acts in solve episodes, takes notes in update episodes, and proposes tasks where it is asked to."""

    policy: TextPolicy
    context: ContextMechanism

    def reply(self, messages: Sequence[Message], rng: random.Random) -> str:
        """The next response. An empty note has no well-formed response; it is returned as it is, and does not parse."""
        if proposal := self.policy.propose(messages, rng):
            return proposal
        act, note = (partial(spoken, rng=rng) for spoken in (self.policy.act, self.policy.note))
        scripted = beside(self.context, Scripted)
        if not scripted.asks(messages):
            return scripted.respond(act, note, messages)
        noted = note(messages)
        return scripted.write(noted, messages) if noted else noted
