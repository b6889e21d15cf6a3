"""The levers with a teacher that forgets as that of `forgetful_doors` does, for `pretrained_families_back.yaml`."""

import random
from collections.abc import Mapping, Sequence

from cod_lightning.envs.levers import Levers
from cod_lightning.envs.levers.world import LeverPlay, LeverPlayers
from cod_lightning.types import Message, Pack

Facts = Mapping[int, str]


class ForgetfulPlay(LeverPlay):
    """What is not known is left out of notes, and a note without a fact says so in the words of the doors."""

    def noisy(self, facts: Facts, accuracy: float, rng: random.Random) -> Facts:
        return {code: colour for code, colour in facts.items() if rng.random() < accuracy}

    def write(self, facts: Facts, messages: Sequence[Message] = ()) -> str:
        lines = super().write(facts, messages).splitlines()
        known = [line for code, line in zip(self.table.codes, lines, strict=True) if code in facts]
        return "\n".join(known) or "- Nothing is known yet."


class ForgetfulPlayers(LeverPlayers):
    """Who plays them."""

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[ForgetfulPlay, Facts]:
        own, truth = super().play(pack, teaches=teaches)
        return ForgetfulPlay(own.wording, own.dials), truth


class ForgetfulLevers(Levers):
    """The levers, whose demonstrated notes lack facts and are never wrong: whether to note is the same question as in the doors."""

    companions = (ForgetfulPlayers, *Levers.companions)
