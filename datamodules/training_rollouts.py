"""How a training rollout becomes optimizer updates: packs -> groups -> shares of whole groups -> batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cod_lightning.objective.batch import Batch, collate, credit_table
from cod_lightning.rollout.segments import segments_of
from cod_lightning.types import Group, Pack


@dataclass(frozen=True, kw_only=True)
class TrainingRollouts:
    """Rolls out and cuts into updates; everything that a run settles before it starts is a field."""

    sample_packs: Callable[[int, int], list[Pack]]
    """Training packs (first, count) of the endless row of packs that the run seed fixes."""
    play: Callable[[Sequence[Pack]], list[Group]]
    """K siblings of each pack, played by the engine's weights."""
    pad_id: Callable[[], int]
    packs_per_rollout: int
    updates_per_rollout: int

    def updates(self, rollout: int) -> list[Batch]:
        """The batches of one rollout of whole groups; each carries the credit table of all."""
        packs = self.sample_packs(rollout * self.packs_per_rollout, self.packs_per_rollout)
        groups = self.play(packs)
        credit = credit_table(groups)
        index = {group.pack.id: g for g, group in enumerate(groups)}
        size = self.packs_per_rollout // self.updates_per_rollout
        shares = (segments_of(groups[start : start + size]) for start in range(0, len(groups), size))
        return [collate(share, credit, index, pad_id=self.pad_id()) for share in shares]
