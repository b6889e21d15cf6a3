"""Lifecycles as a Parquet table, one file for each rollout that is asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import lightning as L
from lightning.pytorch.callbacks import Callback

from callbacks.runner import follow, unfollow
from cod_lightning.rollout.runner import RolloutObserver
from cod_lightning.types import Group

if TYPE_CHECKING:
    from cod_lightning.rollout.table import TableWriter


class LifecycleTable(Callback, RolloutObserver):
    """Writes `lifecycles/LABEL.parquet` under the run's folder, a row an episode (columns: `cod_lightning/rollout/table.py`).

    A file is complete or absent: it replaces an earlier one when the stage ends. Of training every rank above 0 writes
    what it played to `train.rankR.parquet`; the other files hold what all ranks played.

    Args:
        labels: Rollouts that are written: predict, validation, train, test_SUITE_CONDITION.
    """

    def __init__(self, labels: Sequence[str] = ("predict",)) -> None:
        self.labels = tuple(labels)
        self._trainer: L.Trainer | None = None
        self._writers: dict[str, TableWriter] = {}

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._trainer = trainer
        follow(trainer, self)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        unfollow(trainer, self)
        while self._writers:
            self._writers.popitem()[1].finish()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Leave earlier files as they were."""
        while self._writers:
            self._writers.popitem()[1].discard()

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        """Add its rows."""
        assert self._trainer is not None, "setup() has not run"
        if label not in self.labels or self._trainer.sanity_checking or not groups:
            return
        writer = self._writers.get(label) or self._open(label)
        for group in groups:
            writer.add(label, self._trainer.global_step, group)

    def _open(self, label: str) -> "TableWriter":
        from cod_lightning.rollout.table import TableWriter

        assert self._trainer is not None, "setup() has not run"
        root, rank = Path(self._trainer.default_root_dir), self._trainer.global_rank
        name = f"{label}.rank{rank}.parquet" if rank else f"{label}.parquet"
        self._writers[label] = TableWriter(root / "lifecycles" / name, run=root.resolve().name)
        return self._writers[label]
