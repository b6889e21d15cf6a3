"""Trains on lifecycles of a transcript: the same ones on any number of ranks, whatever an engine would sample."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cod_lightning.datamodules.rollout import RolloutDataModule
from cod_lightning.rollout import transcript
from cod_lightning.types import Group, Pack


class RecordedRollouts(RolloutDataModule):
    """A training pack's group is the one that was recorded under its name; without a recording it plays."""

    recorded: Path | None = None

    def groups(self, label: str, packs: Sequence[Pack], *more: Any, **options: Any) -> list[Group]:
        if self.recorded is None or label != "train":
            return super().groups(label, packs, *more, **options)
        groups = {group.pack.id: group for group in transcript.read(self.recorded)}
        return [groups[pack.id] for pack in packs]
