"""Trains on lifecycles of a transcript: the same ones on any number of ranks, whatever an engine would have said."""

from collections.abc import Sequence
from pathlib import Path

from cod_lightning.rollout import transcript
from cod_lightning.types import Group, Pack
from datamodules.rollout import RolloutDataModule


class RecordedRollouts(RolloutDataModule):
    """A training pack's group is the one that was recorded under its name; without a recording it plays."""

    recorded: Path | None = None

    def _train_groups(self, packs: Sequence[Pack], replacing: bool) -> list[Group]:
        if self.recorded is None:
            return super()._train_groups(packs, replacing)
        groups = {group.pack.id: group for group in transcript.read(self.recorded)}
        return self._recorded("train", lambda: [groups[pack.id] for pack in packs])
