"""Training rollouts that were played."""

from collections.abc import Sequence
from dataclasses import dataclass

from cod_lightning.credit.table import EpisodeTable, episode_table, facts_of
from cod_lightning.ranks import gathered
from cod_lightning.rollout.runner import RolloutPart
from cod_lightning.training.packs import PackChoice
from cod_lightning.types import Group, Pack

Contexts = Sequence[Sequence[str | None]]
"""[K N] what each task of a group began with, as `ContextMechanism.dump` writes it; None where it did not take place."""


@dataclass(frozen=True)
class PlayedPack:
    """A pack of a rollout, the rank that plays it, and what came of it."""

    choice: PackChoice
    pack: Pack
    rank: int
    group: Group | None = None
    """None on the other ranks, and before it is played."""
    contexts: Contexts | None = None
    """Of a group that a checkpoint kept; else its episodes have them."""


@dataclass(frozen=True, kw_only=True)
class PlayedRollout:
    """The packs of a rollout."""

    packs: Sequence[PlayedPack]
    """Those that are trained on."""
    replaced: Sequence[PlayedPack] = ()
    """Those that others were played in place of."""
    parts: Sequence[RolloutPart] = ()
    """What was played at a time: the rollout, then replacements."""

    @property
    def num_packs(self) -> int:
        return len(self.packs) + len(self.replaced)


def own_groups(packs: Sequence[PlayedPack]) -> list[Group]:
    """This rank's."""
    return [one.group for one in packs if one.group is not None]


def table_of(packs: Sequence[PlayedPack]) -> EpisodeTable:
    """The episodes of all ranks; every rank has to call it."""
    facts = [iter(of_rank) for of_rank in gathered(list(map(facts_of, own_groups(packs))))]
    return episode_table([next(facts[one.rank]) for one in packs])
