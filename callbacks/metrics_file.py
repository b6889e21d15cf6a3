"""`metrics.csv` that goes on where a checkpoint was written, without gap or repeat."""

import csv
from pathlib import Path

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter


class MetricsFile(CSVLogger):
    """Lightning's `CSVLogger`, which deletes the file that it finds, with the rows before `resumed_at` put back.

    Args:
        folder: Folder of metrics.csv.
        resumed_at: Optimizer updates of the checkpoint that the run goes on from; null begins the file anew.
    """

    def __init__(self, folder: Path, resumed_at: int | None) -> None:
        super().__init__(save_dir=folder, name="", version="", flush_logs_every_n_steps=10)
        path = folder / "metrics.csv"
        self._kept = rows_before(path, resumed_at) if resumed_at is not None and path.is_file() else []

    @property
    @rank_zero_experiment
    def experiment(self) -> ExperimentWriter:
        """The writer; on first use it gets the rows that were kept."""
        first = self._experiment is None
        writer = super().experiment
        if first and self._kept:
            with open(writer.metrics_file_path, "w", newline="") as file:
                csv.writer(file).writerows(self._kept)
            writer.metrics_keys = list(self._kept[0])
        return writer


def rows_before(path: Path, num_updates: int) -> list[list[str]]:
    """Header and rows of the updates before `num_updates`; a torn last row of a run that was killed does not count."""
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    if not rows or "step" not in rows[0]:
        return []
    step = rows[0].index("step")
    whole = [row for row in rows[1:] if len(row) == len(rows[0])]
    return [rows[0], *(row for row in whole if row[step] and int(row[step]) < num_updates)]
