"""The curves of a run: TensorBoard's events, and `metrics.csv`, which goes on where a checkpoint was written."""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter

from cod_lightning.errors import DataError
from cod_lightning.files import sync, without_link

_STEP = re.compile(r"\d{1,18}")


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


class MetricsFile(CSVLogger):
    """Lightning's `CSVLogger` without its two moments in which the rows of before are not on disk.

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
        """The writer; it begins with the rows that were kept."""
        if not isinstance(self._experiment, ExperimentWriter):
            self._experiment = _Writer(self.log_dir, self._kept)
        return self._experiment


class _Writer(ExperimentWriter):
    """Replaces the file, with its rows of before, where Lightning's removes it or writes over it.

    The file of before stays until there is a first row, so that a run which is refused at its start loses nothing.
    """

    def __init__(self, log_dir: str, kept: Sequence[Sequence[str]]) -> None:
        super().__init__(log_dir)
        self._kept: Sequence[Sequence[str]] | None = kept
        self.metrics_keys = list(kept[0]) if kept else []

    def save(self) -> None:
        """Rows are on disk before the checkpoint that counts on them."""
        written = bool(self.metrics)
        if written and self._kept is not None:
            if self._kept:
                _replace(Path(self.metrics_file_path), self._kept)
            else:
                Path(self.metrics_file_path).unlink(missing_ok=True)
            self._kept = None
        super().save()
        if written:
            sync(Path(self.metrics_file_path))

    def _check_log_dir_exists(self) -> None:
        """Leave the file of before until there is a new one."""

    def _rewrite_with_new_header(self, fieldnames: list[str]) -> None:
        path = Path(self.metrics_file_path)
        with path.open(newline="") as file:
            rows = [[row.get(name, "") for name in fieldnames] for row in csv.DictReader(file)]
        _replace(path, [fieldnames, *rows])


def _replace(path: Path, rows: Sequence[Sequence[str]]) -> None:
    beside = path.with_name(f"{path.name}.writing")
    with without_link(beside).open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    sync(beside)
    beside.replace(path)


def rows_before(path: Path, num_updates: int) -> list[list[str]]:
    """Header and rows of the updates before `num_updates`; a torn last row of a run that was killed does not count.

    Raises `DataError` where it is no CSV."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.reader(file))
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read ({error}). Move it away to go on without its rows.") from error
    if not rows or "step" not in rows[0]:
        return []
    step = rows[0].index("step")
    whole = [row for row in rows[1:] if len(row) == len(rows[0])]
    return [rows[0], *(row for row in whole if _STEP.fullmatch(row[step]) and int(row[step]) < num_updates)]
