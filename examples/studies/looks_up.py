"""The player of the demonstrations of invented domains, who looks things up and infers nothing, as a yardstick."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Reference
from cod_lightning.envs.invented import Invented
from cod_lightning.envs.invented.policies import Facts, InventedPlay
from cod_lightning.envs.invented.world import InventedPlayers
from cod_lightning.evaluation.references import play_reference, summarise
from cod_lightning.evaluation.suite import Suite
from cod_lightning.types import Pack


class LookingUpPlayers(InventedPlayers):
    """Who plays the invented rules, looked up."""

    def play(self, pack: Pack, *, teaches: bool = False) -> tuple[InventedPlay, Facts]:
        return super().play(pack, teaches=True)


class LooksUp(Invented):
    """Domains whose scripted player plays as demonstrations do: what is stated is looked up, and nothing is inferred."""

    companions = (LookingUpPlayers, *Invented.companions)


def met(suite: dict[str, Any]) -> tuple[LooksUp, list[Pack]]:
    """A suite's environment and its packs."""
    world = LooksUp(**suite["env"]["init_args"])
    return world, list(Suite(name=suite["name"], num_packs=suite["num_packs"], pack_size=4).packs(world))


def looked_up(suites: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The transfer of that player by suite."""
    found: dict[str, float] = {}
    for suite in suites:
        world, drawn = met(suite)
        how = world, drawn, Reference.SCRIPTED, HintContext("compact")
        lives = (list(play_reference(*how, blanked=blanked)) for blanked in (False, True))
        shown, hidden = (summarise(of).success[1:] for of in lives)
        found[suite["name"]] = mean(one.mean for one in shown) - mean(one.mean for one in hidden)
    return found
