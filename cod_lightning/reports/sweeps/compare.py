"""The runs of a sweep, compared: a record for each cell, paired with the reference cell and with the warm start."""

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cod_lightning.errors import ConfigError
from cod_lightning.evaluation.crossed import holm
from cod_lightning.evaluation.results import read_results
from cod_lightning.files import write_whole
from cod_lightning.reports.sweeps.cells import COSTS, Cell, cells_of, warm_start_outcomes
from cod_lightning.reports.sweeps.record import JobRecord, JobStatus, read_jobs
from cod_lightning.reports.sweeps.schema import CellRecord, SweepRecord, SweepResults, WarmStartRecord
from cod_lightning.reports.sweeps.statistics import (
    BySeed,
    difference_table,
    mean_over_positions,
    statistics,
    success_table,
)

_EQUAL = 1.05
"""Most that the largest budget may be of the smallest for runs to count as equally expensive."""
_SEED = "seed_everything"


def compare(roots: Sequence[Path], reference: str | None = None) -> SweepResults:
    """Everything that is finished in these folders, a record for each config and suite."""
    jobs: dict[Path, JobRecord] = {}
    for root in roots:
        found = read_jobs(root)
        if not found:
            raise ConfigError("--table", root, "the folder of a sweep, with */job.json", "Run the sweep first.")
        jobs |= found
    records: list[SweepRecord] = []
    for config in dict.fromkeys(record.config for record in jobs.values()):
        fits = {f: r for f, r in jobs.items() if r.config == config}
        done = [folder for folder, record in fits.items() if record.status is JobStatus.FINISHED]
        suites = dict.fromkeys(name for folder in done for name in read_results(folder / "evaluation.json")["suites"])
        records += [_sweep(config, suite, cells_of(fits, suite), reference) for suite in suites]
    if not records:
        raise ConfigError("--table", roots[0], "a sweep with a finished, evaluated job", "Look into the jobs' log.txt.")
    return SweepResults(sweeps=records)


def write_results(path: Path, results: SweepResults) -> None:
    """As JSON."""
    write_whole(path, json.dumps(results, indent=1, allow_nan=False) + "\n")


def _sweep(config: str, suite: str, cells: Sequence[Cell], asked: str | None) -> SweepRecord:
    done = [cell for cell in cells if cell.runs]
    first = _reference(done, asked)
    some = next(iter(first.runs.values())).outcomes
    warm_starts = {cell.label: warm_start_outcomes(cell, suite) for cell in done}
    records = [_cell(cell, first, warm_starts[cell.label]) for cell in done]
    best = _best(warm_starts[first.label])
    temperatures = {name: statistics(success_table(runs)) for name, runs in warm_starts[first.label].items()}
    return SweepRecord(
        config=config,
        suite=suite,
        packs=some.num_packs,
        rules=some.num_rules,
        pack_size=some.num_positions,
        varied=list(first.setting),
        reference=first.label,
        cells=records,
        warm_start=None if best is None else WarmStartRecord(best_temperature=best, temperatures=temperatures),
        notes=[*_notes(cells, records), *_corrected(done, first)],
    )


def _reference(cells: Sequence[Cell], asked: str | None) -> Cell:
    """The one cell that was asked for, by some of its settings; the first one where nothing was."""
    if asked is None:
        return cells[0]
    parts = [part.partition("=") for part in asked.split(",")]
    wanted = {key: value for key, _, value in parts}
    matching = [cell for cell in cells if wanted.items() <= cell.setting.items()]
    if len(matching) != 1:
        labels = "; ".join(cell.label for cell in cells)
        raise ConfigError("--reference", asked, f"one cell out of: {labels}", f"It fits {len(matching)}.")
    return matching[0]


def _cell(cell: Cell, first: Cell, warm_starts: Mapping[str, BySeed]) -> CellRecord:
    blanked = {seed: run.blanked for seed, run in cell.runs.items() if run.blanked is not None}
    best = _best(warm_starts)
    minus = None if cell is first else difference_table(cell.outcomes, first.outcomes)
    above = None if best is None else difference_table(cell.outcomes, warm_starts[best])
    return CellRecord(
        label=cell.label,
        setting=cell.setting,
        command=_command(cell),
        seeds=sorted(cell.runs),
        not_finished=sorted(cell.not_finished),
        success=statistics(success_table(cell.outcomes)),
        blanked=statistics(success_table(blanked))["mean"] if blanked else None,
        minus_reference=None if minus is None else statistics(minus),
        minus_warm_start=None if above is None else statistics(above),
        cost=_cost([run.cost for run in cell.runs.values()]),
    )


def _corrected(cells: Sequence[Cell], first: Cell) -> Iterator[str]:
    """Which differences from the reference are left once all of them are asked for at once."""
    tables = {cell.label: difference_table(cell.outcomes, first.outcomes) for cell in cells if cell is not first}
    p_values = {name: mean_over_positions(table).p_value for name, table in tables.items() if table is not None}
    if len(p_values) > 1:
        left = "; ".join(holm(p_values)) or "none"
        yield (
            f"{len(p_values)} cells are compared with the reference, and each interval speaks of one comparison. "
            f"Differences in the mean that survive Holm's correction: {left}."
        )


def _best(warm_starts: Mapping[str, BySeed]) -> str | None:
    """The condition of the warm start that solves most, of those of which anything is known."""
    tables = {name: success_table(runs) for name, runs in warm_starts.items()}
    means = {name: np.nanmean(one.values) for name, one in tables.items() if not np.isnan(one.values).all()}
    return max(means, key=lambda name: means[name], default=None)


def _cost(costs: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    def known(name: str) -> list[float]:
        values = [cost[name] for cost in costs]
        return [] if any(map(math.isnan, values)) else values

    means = {name: round(sum(found) / len(found), 1) if (found := known(name)) else None for name in COSTS}
    sampled = known("sampled_tokens")
    return {**means, "sampled_tokens_range": [min(sampled), max(sampled)] if sampled else None}


def _command(cell: Cell) -> str:
    """What runs the cell again, with all its seeds."""
    record = cell.records[0]
    axes = [line for line in record.overrides if not line.startswith(f"{_SEED}=")]
    seeds = ",".join(map(str, sorted(one.seed for one in cell.records)))
    return shlex.join(["python", "-m", "cod_lightning", "sweep", "--config", record.config, *axes, f"{_SEED}={seeds}"])


def _notes(cells: Sequence[Cell], records: Sequence[CellRecord]) -> Iterator[str]:
    for cell in cells:
        for record in cell.records:
            if record.status is not JobStatus.FINISHED:
                reason = f": {record.error}" if record.error else ""
                yield f"{cell.label}, seed {record.seed}, is not in the figures, {record.status}{reason}"
    spent = [tokens for one in records for tokens in one["cost"]["sampled_tokens_range"] or ()]
    if spent and max(spent) > _EQUAL * min(spent):
        yield (
            f"Budgets are not equal: runs sampled {min(spent):,.0f} to {max(spent):,.0f} tokens. "
            "Set sampled_token_budget, and trainer.max_epochs=-1."
        )
    several = {tuple(one["seeds"]) for one in records}
    if len(several) > 1:
        yield "Cells were run with different seeds; differences are over the seeds that both sides have."
    if min(len(one["seeds"]) for one in records) < 2:
        yield "Some cells have one seed; their intervals are over packs alone and say nothing about another training."
