"""Cells of a sweep: the finished runs of one setting, a seed each, read from their folders, and what they started from."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cod_lightning.errors import DataError
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.packs_file import read_packs
from cod_lightning.evaluation.results import read_results
from cod_lightning.evaluation.suite import ConditionKind
from cod_lightning.reports.sweeps.record import JobRecord, JobStatus
from cod_lightning.reports.sweeps.statistics import BySeed

AS_CONFIGURED = "as configured"
"""The choice in a key that only others of the sweep have."""
_MOST = 1e18
"""Tokens and seconds of a run; means of more are no numbers."""


COSTS = {
    "updates": "updates",
    "sampled_tokens": "tokens sampled",
    "trained_tokens": "tokens trained",
    "train_s": "training, s",
    "wall_s": "process, s",
    "cpu_s": "process, CPU s",
    "peak_mib": "peak, MiB",
}
"""What a run took, with the head of its column: tokens of training rollouts, and, for each update, through forward and backward;
seconds in rollouts and updates; and, evaluation included, wall, user and system time and largest memory of the process."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FinishedRun:
    """A run and what is compared of it."""

    folder: Path
    record: JobRecord
    outcomes: Outcomes
    blanked: Outcomes | None
    """Of the trained policy with its context hidden."""
    cost: dict[str, float]
    """By the names of `COSTS`; NaN where nothing was logged."""


@dataclass(kw_only=True, eq=False)
class Cell:
    """Every seed of one setting."""

    setting: dict[str, str]
    """Cut to the keys in which the sweep's cells differ."""
    label: str = ""
    runs: dict[int, FinishedRun] = field(default_factory=dict)
    not_finished: list[int] = field(default_factory=list)
    records: list[JobRecord] = field(default_factory=list)

    @property
    def outcomes(self) -> BySeed:
        """Of the trained policies."""
        return {seed: run.outcomes for seed, run in self.runs.items()}


def cells_of(fits: Mapping[Path, JobRecord], suite: str) -> list[Cell]:
    """The cells of these jobs, in the order in which their settings were asked for."""
    found: dict[str, Cell] = {}
    for folder, record in sorted(fits.items(), key=lambda item: item[1].order):
        cell = found.setdefault(json.dumps(record.setting, sort_keys=True), Cell(setting=dict(record.setting)))
        cell.records.append(record)
        run = read_finished(folder, record, suite) if record.status is JobStatus.FINISHED else None
        if run is None:
            cell.not_finished.append(record.seed)
        elif (other := cell.runs.setdefault(record.seed, run)) is not run:
            both = f"{folder} and {other.folder} have the same setting and seed"
            raise DataError(f"{both}, but not the same config. Move one away.")
    varied = _varied(list(found.values()))
    for cell in found.values():
        cell.setting = {key: cell.setting.get(key, AS_CONFIGURED) for key in varied}
        cell.label = label_of(cell.setting)
    return list(found.values())


def label_of(setting: Mapping[str, str]) -> str:
    """The choices that were made."""
    made = [f"{key}={choice}" for key, choice in setting.items() if choice != AS_CONFIGURED]
    return ", ".join(made) or AS_CONFIGURED


def warm_start_outcomes(cell: Cell, suite: str) -> dict[str, BySeed]:
    """Condition (`warm_start`, `warm_start_t0.3`) -> seed -> outcomes of what the cell's runs started from."""
    found: dict[str, dict[int, Outcomes]] = {}
    for seed, run in cell.runs.items():
        record = read_results(run.folder / "evaluation.json")["suites"].get(suite)
        for name in record["controls"] if record else ():
            outcomes = read_packs(run.folder / "evaluation_packs.parquet", suite, name)
            if outcomes is not None and name.startswith("warm_start") and name != ConditionKind.WARM_START_BLANKED:
                found.setdefault(name, {})[seed] = outcomes
    return {name: runs for name, runs in found.items() if runs.keys() == cell.runs.keys()}


def _varied(cells: list[Cell]) -> list[str]:
    """Keys in which cells differ, those first that were typed; what only follows from one of these is left out.

    A key that was not typed and that some cells do not have is one that their version of a config did not know: no difference.
    """
    typed = [line.lstrip("+~").partition("=")[0] for cell in cells for one in cell.records for line in one.overrides]
    keys = dict.fromkeys([*typed, *(key for cell in cells for key in cell.setting)])
    known = {key: {cell.setting[key] for cell in cells if key in cell.setting} for key in keys}
    lacking = {key for key in typed if any(key not in cell.setting for cell in cells)}
    varied = [key for key in keys if len(known[key]) > 1 or (known[key] and key in lacking)]
    kept = [key for key in varied if key in typed]
    for key in varied:
        follows = False  # whether the choice in one kept key fixes that in this one
        for other in kept:
            pairs = {(cell.setting.get(other), cell.setting.get(key)) for cell in cells}
            follows |= len(pairs) == len({choice for choice, _ in pairs})
        if key not in kept and not follows:
            kept.append(key)
    return kept


def read_finished(folder: Path, record: JobRecord, suite: str) -> FinishedRun | None:
    """The run, as far as a suite is concerned; None where it was not evaluated on it. Raises `DataError` for damaged files."""
    outcomes = read_packs(folder / "evaluation_packs.parquet", suite, ConditionKind.TRAINED)
    if outcomes is None:
        return None
    blanked = read_packs(folder / "evaluation_packs.parquet", suite, "blanked_context")
    path = folder / "metrics.csv"
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [{k: float(v) for k, v in row.items() if k and v} for row in csv.DictReader(file)]
        cost = _cost(rows, record)
    except (OSError, ValueError, KeyError, csv.Error) as error:
        said = " ".join(str(error).split())[:200]
        raise DataError(
            f"{path} is no metrics.csv of this project ({type(error).__name__}: {said}). Move {folder} away."
        ) from error
    return FinishedRun(folder=folder, record=record, outcomes=outcomes, blanked=blanked, cost=cost)


def _cost(rows: Sequence[dict[str, float]], record: JobRecord) -> dict[str, float]:
    updates = [row for row in rows if "tokens/sampled" in row]
    rollouts = {row["tokens/sampled"]: row.get("time/wait_s", row["time/rollout_s"]) for row in reversed(updates)}
    last = updates[-1] if updates else {}
    cost: dict[str, float] = {
        "updates": len(updates),
        "sampled_tokens": last.get("tokens/sampled", math.nan),
        "trained_tokens": last.get("tokens/trained", math.nan),
        "train_s": sum(rollouts.values()) + sum(row["time/train_s"] for row in updates),
        **{name: getattr(record, name) for name in ("wall_s", "cpu_s", "peak_mib")},
    }
    if any(abs(number) > _MOST for number in cost.values()):
        raise ValueError(f"a number above {_MOST:g}")
    return cost
