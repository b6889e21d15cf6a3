"""One finished run of a sweep, read from its folder: outcomes pack by pack, its learning curve, what it cost."""

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.packs_file import read_packs
from cod_lightning.reports.sweeps.record import JobRecord


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a training took; evaluation counts in the last three only."""

    updates: int
    sampled_tokens: float
    """In training rollouts."""
    trained_tokens: float
    """Through forward and backward, once for each update."""
    train_s: float
    """In training rollouts and updates."""
    wall_s: float
    """Of the whole process."""
    cpu_s: float
    """User and system time of the whole process."""
    peak_mib: float


@dataclass(frozen=True, kw_only=True, eq=False)
class FinishedRun:
    """A run and what is compared of it."""

    folder: Path
    record: JobRecord
    outcomes: Outcomes
    blanked: Outcomes | None
    """Of the trained policy with its context hidden."""
    curve: tuple[tuple[float, float], ...]
    """Sampled tokens, success on validation packs in the mean over positions; a pair a validation."""
    cost: Cost


def read_finished(folder: Path, record: JobRecord, suite: str) -> FinishedRun | None:
    """The run, as far as a suite is concerned; None where it was not evaluated on it."""
    outcomes = read_packs(folder / "evaluation_packs.parquet", suite, "trained")
    if outcomes is None:
        return None
    blanked = read_packs(folder / "evaluation_packs.parquet", suite, "blanked_context")
    rows = _metrics(folder / "metrics.csv")
    curve, cost = tuple(_curve(rows)), _cost(rows, record)
    return FinishedRun(folder=folder, record=record, outcomes=outcomes, blanked=blanked, curve=curve, cost=cost)


def curve_at(run: FinishedRun, tokens: np.ndarray) -> np.ndarray:
    """Success after so many sampled tokens, between two validations on the line that joins them."""
    x, y = np.array(run.curve).T
    return np.interp(tokens, x, y)


def _metrics(path: Path) -> list[dict[str, float]]:
    """The numbers of every row."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{k: float(v) for k, v in row.items() if k and v} for row in csv.DictReader(file)]


def _curve(rows: Sequence[dict[str, float]]) -> Iterator[tuple[float, float]]:
    tokens = 0.0
    for row in rows:
        tokens = row.get("tokens/sampled", tokens)
        success = [v for k, v in row.items() if k.startswith("val/success/position_")]
        if success:
            yield tokens, sum(success) / len(success)


def _cost(rows: Sequence[dict[str, float]], record: JobRecord) -> Cost:
    updates = [row for row in rows if "tokens/sampled" in row]
    rollouts = {row["tokens/sampled"]: row.get("time/wait_s", row["time/rollout_s"]) for row in reversed(updates)}
    last = updates[-1] if updates else {}
    return Cost(
        updates=len(updates),
        sampled_tokens=last.get("tokens/sampled", math.nan),
        trained_tokens=last.get("tokens/trained", math.nan),
        train_s=sum(rollouts.values()) + sum(row["time/train_s"] for row in updates),
        wall_s=record.wall_s,
        cpu_s=record.cpu_s,
        peak_mib=record.peak_mib,
    )
