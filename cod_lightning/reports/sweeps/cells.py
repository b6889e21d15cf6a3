"""Cells of a sweep: the runs of one setting, a seed each, and what they started from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cod_lightning.errors import DataError
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.packs_file import read_packs
from cod_lightning.evaluation.results import read_results
from cod_lightning.reports.sweeps.record import JobRecord, JobStatus
from cod_lightning.reports.sweeps.runs import FinishedRun, read_finished
from cod_lightning.reports.sweeps.statistics import BySeed

AS_CONFIGURED = "as configured"
"""The choice in a key that only others of the sweep have."""


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
        _add(cell, folder, record, suite)
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
        folder = run.folder.parent / (run.record.warm_start or "")
        if run.record.warm_start is None or not (folder / "evaluation.json").is_file():
            continue
        record = read_results(folder / "evaluation.json")["suites"].get(suite)
        for name in record["controls"] if record else ():
            outcomes = read_packs(folder / "evaluation_packs.parquet", suite, name)
            if outcomes is not None and name.startswith("warm_start"):
                found.setdefault(name, {})[seed] = outcomes
    return {name: runs for name, runs in found.items() if runs.keys() == cell.runs.keys()}


def _varied(cells: list[Cell]) -> list[str]:
    """Keys in which cells differ, those first that were typed; what only follows from one of these is left out.

    A key that nobody typed and some cells do not have is one that their version of a config did not know: no difference.
    """
    typed = [line.lstrip("+~").partition("=")[0] for cell in cells for one in cell.records for line in one.overrides]
    keys = dict.fromkeys([*typed, *(key for cell in cells for key in cell.setting)])
    known = {key: {cell.setting[key] for cell in cells if key in cell.setting} for key in keys}
    lacking = {key for key in typed if any(key not in cell.setting for cell in cells)}
    varied = [key for key in keys if len(known[key]) > 1 or (known[key] and key in lacking)]
    kept = [key for key in varied if key in typed]
    for key in varied:
        if key not in kept and not any(_follows(key, other, cells) for other in kept):
            kept.append(key)
    return kept


def _follows(key: str, other: str, cells: list[Cell]) -> bool:
    """Whether the choice in one key fixes that in another."""
    pairs = {(cell.setting.get(other), cell.setting.get(key)) for cell in cells}
    return len(pairs) == len({choice for choice, _ in pairs})


def _add(cell: Cell, folder: Path, record: JobRecord, suite: str) -> None:
    cell.records.append(record)
    run = read_finished(folder, record, suite) if record.status is JobStatus.FINISHED else None
    if run is None:
        cell.not_finished.append(record.seed)
    elif record.seed in cell.runs:
        other = cell.runs[record.seed].folder
        raise DataError(f"{folder} and {other} have the same setting and seed, but not the same config. Move one away.")
    else:
        cell.runs[record.seed] = run
