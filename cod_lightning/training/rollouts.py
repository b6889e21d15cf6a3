"""How a training rollout becomes optimizer updates: packs -> groups -> one batch of rows -> shares of it, pass by pass."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Bool
from torch import Tensor

from cod_lightning.objective.batch import CreditTable, collate
from cod_lightning.ranks import rank
from cod_lightning.rollout.segments import segments_of
from cod_lightning.seeds import derive_seed
from cod_lightning.training.shares import owners, table_of_all
from cod_lightning.training.stream import Rollout
from cod_lightning.types import Group, Pack


@dataclass(frozen=True)
class Place:
    """A pack of a rollout, played, and who has its group."""

    pack: Pack
    rank: int
    group: Group | None
    """None on the other ranks."""


@dataclass(frozen=True, kw_only=True)
class TrainingRollouts:
    """Rolls out and cuts into updates; everything that a run settles before it starts is a field."""

    sample_packs: Callable[[int, int], list[Pack]]
    """Training packs (first, count) of the endless row of packs that the run seed fixes."""
    play: Callable[[Sequence[Pack], bool], list[Group]]
    """K siblings of each of this rank's packs, by the engine's weights; the flag says that they belong to the rollout before."""
    has_signal: Callable[[CreditTable], Bool[Tensor, " G"]]
    """Whether a pack has any advantage; asked for only where packs are replaced."""
    pad_id: Callable[[], int]
    packs_per_rollout: int
    updates_per_rollout: int
    """Of one pass."""
    passes_per_rollout: int
    resample_packs: int
    seed: int

    def roll_out(self, rollout: int, first_pack: int) -> Rollout:
        """Play the packs from `first_pack` on; this rank's rows, every update with the credit table of all ranks' groups."""
        return self.made(rollout, *self.places(first_pack))

    def made(self, rollout: int, places: Sequence[Place], num_packs: int) -> Rollout:
        """The rollout made of these places. Every rank has to ask, and then learns of all ranks' rewards."""
        index = {place.pack.id: g for g, place in enumerate(places)}
        batch = collate(segments_of(_own(places)), _table(places), index, pad_id=self.pad_id())
        return Rollout(batch=batch, shares=self._shares(rollout), num_packs=num_packs)

    def places(self, first: int) -> tuple[list[Place], int]:
        """The packs of a rollout, played, and how many it took.

        Dynamic sampling (DAPO, arXiv 2503.14476): packs in which no sibling did better than another are replaced by as many
        further ones, in at most `resample_packs` rounds. What differs: the source goes on until the batch is full; here
        packs without signal fill what is missing after the last round, so that every update has as many packs.
        """
        wanted, num_packs = self.packs_per_rollout, 0
        kept: list[Place] = []
        silent: list[Place] = []
        for number in range(1 + self.resample_packs):
            packs = self.sample_packs(first + num_packs, wanted - len(kept))
            places = self._played(packs, replacing=number > 0)
            num_packs += len(packs)
            if not self.resample_packs:
                return places, num_packs
            signal = self.has_signal(_table(places)).tolist()
            kept += [place for place, has in zip(places, signal, strict=True) if has]
            silent += [place for place, has in zip(places, signal, strict=True) if not has]
            if len(kept) == wanted:
                break
        return (kept + silent)[:wanted], num_packs

    def _played(self, packs: Sequence[Pack], *, replacing: bool) -> list[Place]:
        """Each update's packs are shared out equally; replacements as they come."""
        ranks = owners(len(packs), 1 if replacing else self.updates_per_rollout)
        own = iter(self.play([pack for pack, of in zip(packs, ranks, strict=True) if of == rank()], replacing))
        return [Place(pack, of, next(own) if of == rank() else None) for pack, of in zip(packs, ranks, strict=True)]

    def _shares(self, rollout: int) -> list[list[int]]:
        """The packs of each update: in their order in the first pass, shuffled anew for every further one."""
        shares: list[list[int]] = []
        size = self.packs_per_rollout // self.updates_per_rollout
        for number in range(self.passes_per_rollout):
            order = list(range(self.packs_per_rollout))
            if number:
                random.Random(derive_seed("pass", self.seed, rollout, number)).shuffle(order)
            shares += [order[start : start + size] for start in range(0, len(order), size)]
        return shares


def _own(places: Sequence[Place]) -> list[Group]:
    return [place.group for place in places if place.group is not None]


def _table(places: Sequence[Place]) -> CreditTable:
    return table_of_all(_own(places), [place.rank for place in places])
