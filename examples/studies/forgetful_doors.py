"""The doors with a teacher that forgets, for `pretrained_doors.yaml`."""

import random
from collections.abc import Mapping

from cod_lightning.envs.doors import Doors
from cod_lightning.envs.doors.world import DoorPlay, DoorPlayers
from cod_lightning.types import Pack

Facts = Mapping[int, str]


class ForgetfulPlay(DoorPlay):
    """A fact that is not noted as it was seen is left out, where `DoorPlay` notes any key."""

    def noisy(self, facts: Facts, accuracy: float, rng: random.Random) -> Facts:
        return {door: key for door, key in facts.items() if rng.random() < accuracy}


class ForgetfulPlayers(DoorPlayers):
    """Who plays them."""

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[DoorPlay, Facts]:
        own, truth = super().play(pack, teaches=teaches)
        return ForgetfulPlay(own.wording), truth


class ForgetfulDoors(Doors):
    """The doors, whose demonstrated notes lack facts and are never wrong: greedy decoding of their copy notes little."""

    companions = (ForgetfulPlayers, *Doors.companions)
