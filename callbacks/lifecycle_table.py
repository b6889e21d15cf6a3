"""Lifecycles as a Parquet table, one file for each rollout that is asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import lightning as L

from cod_lightning.callbacks.runner import RolloutCallback, lifecycles_file
from cod_lightning.types import Group

if TYPE_CHECKING:
    from cod_lightning.rollout.table import TableWriter


class LifecycleTable(RolloutCallback):
    """Writes `lifecycles/LABEL.parquet` under the run's folder, a row an episode (columns: `cod_lightning/rollout/table.py`).

    A file is complete or absent: it replaces an earlier one when the stage ends. Of training every rank above 0 writes
    what it played to `train.rankR.parquet`; the other files hold what all ranks played.

    Args:
        labels: Rollouts that are written: predict, validation, train, test_SUITE_CONDITION.
    """

    def __init__(self, labels: Sequence[str] = ("predict",)) -> None:
        self.labels = tuple(labels)
        self._writers: dict[str, TableWriter] = {}

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().teardown(trainer, pl_module, stage)
        while self._writers:
            self._writers.popitem()[1].finish()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Leave earlier files as they were."""
        while self._writers:
            self._writers.popitem()[1].discard()

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        if label not in self.labels or self._trainer.sanity_checking or not groups:
            return
        writer = self._writers.get(label) or self._open(label)
        for group in groups:
            writer.add(label, self._trainer.global_step, group)

    def _open(self, label: str) -> "TableWriter":
        from cod_lightning.rollout.table import TableWriter

        run = Path(self._trainer.default_root_dir).resolve().name
        self._writers[label] = TableWriter(lifecycles_file(self._trainer, label, "parquet"), run=run)
        return self._writers[label]
