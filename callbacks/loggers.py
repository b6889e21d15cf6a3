"""The curves of a run: TensorBoard's events, and `metrics.csv`, which goes on where a checkpoint was written."""

import csv
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import Logger, TensorBoardLogger

from cod_lightning.errors import DataError
from cod_lightning.files import sync, without_link

_STEP = re.compile(r"\d{1,18}")
_ROWS_AT_A_TIME = 10
"""That wait to be written."""


class Events(TensorBoardLogger):
    """Lightning's `TensorBoardLogger` without `hparams.yaml`, which would be empty: a run's settings are in its `config.yaml`.

    Args:
        folder: Folder of the run, whose folder tensorboard it writes to.
        resumed_at: Optimizer updates of the checkpoint that the run goes on from; TensorBoard then hides later events.
    """

    def __init__(self, folder: Path, resumed_at: int | None) -> None:
        super().__init__(save_dir=folder, name="tensorboard", version="", purge_step=resumed_at)

    @rank_zero_only
    def save(self) -> None:
        """Events are on disk."""
        self.experiment.flush()


class MetricsFile(Logger):
    """Writes metrics.csv, a row for each call; the rows of before are on disk at every moment.

    The file of before stays until there is a first row, so that a run which is refused at its start loses nothing.

    Args:
        folder: Folder of metrics.csv.
        resumed_at: Optimizer updates of the checkpoint that the run goes on from; null begins the file anew.
    """

    def __init__(self, folder: Path, resumed_at: int | None) -> None:
        super().__init__()
        self.path, self._keeps = folder / "metrics.csv", resumed_at or 0
        rows_before(self.path, self._keeps)  # refused now if it cannot be read
        self._columns: list[str] = []
        self._rows: list[dict[str, Any]] = []

    @property
    def name(self) -> str:
        return ""

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing: a run's settings are in its `config.yaml`."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self._rows.append({**metrics, "step": step})
        if len(self._rows) >= _ROWS_AT_A_TIME:
            self.save()

    @rank_zero_only
    def save(self) -> None:
        """Rows are on disk before the checkpoint that counts on them."""
        if not self._rows:
            return
        if set().union(*self._rows) <= set(self._columns) and self.path.is_file():
            with self.path.open("a", newline="") as file:
                csv.DictWriter(file, self._columns).writerows(self._rows)
            sync(self.path)
        else:
            self._begin([*rows_before(self.path, self._keeps), *self._rows])
        self._rows = []

    def _begin(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace the file by one of these rows; from here on all that it has is this run's."""
        self._columns, self._keeps = sorted(set().union(*rows)), sys.maxsize
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(f"{self.path.name}.writing")
        with without_link(beside).open("w", newline="") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(rows)
        sync(beside)
        beside.replace(self.path)


def rows_before(path: Path, num_updates: int) -> list[dict[str, str]]:
    """Rows of the updates before `num_updates`; a torn last row of a run that was killed does not count.

    Raises `DataError` where it is no CSV."""
    if not num_updates or not path.is_file():
        return []
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}). Move it away to go on without its rows.") from error
    whole = [row for row in rows if None not in row and None not in row.values()]
    return [row for row in whole if _STEP.fullmatch(row.get("step", "")) and int(row["step"]) < num_updates]
