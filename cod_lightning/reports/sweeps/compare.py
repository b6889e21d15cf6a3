"""The runs of a sweep, compared: a record for each cell, paired by seed and pack with a reference cell and with the warm start."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import NotRequired, TypedDict

import numpy as np
from jaxtyping import Float

from cod_lightning.errors import ConfigError, DataError
from cod_lightning.evaluation.crossed import crossed_estimate, holm
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.packs_file import read_packs
from cod_lightning.evaluation.results import read_results
from cod_lightning.evaluation.schema import Figure
from cod_lightning.evaluation.view import WARM_START, figure
from cod_lightning.reports.curves import ends, read_metrics
from cod_lightning.reports.page import rendered
from cod_lightning.reports.sweeps.record import JobRecord, read_jobs

_EQUAL = 1.05
"""Most that the largest budget may be of the smallest for runs to count as equally expensive."""
_MOST = 1e18
"""Tokens and seconds of a run; more is no count."""
COSTS = {"updates": "updates", "sampled_tokens": "tokens sampled", "trained_tokens": "tokens trained", "train_s": "s"}
"""What a training took, with the head of its column: tokens of its rollouts, tokens through forward and backward, seconds in
rollouts and updates."""

BySeed = Mapping[int, Outcomes]
"""Seed -> what came of the packs."""


class Statistics(TypedDict):
    """Success of a cell, or of a difference of two, with 95 % intervals over seeds and packs (`evaluation/crossed.py`)."""

    by_position: list[Figure]
    mean: Figure
    """Over positions."""
    gain: Figure
    """Last minus first position."""


class CellRecord(TypedDict):
    """One cell: every seed of one setting."""

    label: str
    """The overrides that tell it from the sweep's other cells."""
    seeds: list[int]
    """Finished."""
    success: Statistics
    blanked: Figure | None
    """Mean over positions with the context hidden."""
    minus_reference: Statistics | None
    """Paired by seed and pack."""
    minus_warm_start: Statistics | None
    """At the temperature that is best for it, paired by seed and pack."""
    in_training: dict[str, tuple[float, float]]
    """pass@K and entropy (nats a token), of the first update and of the last quarter; means over seeds, which all logged it."""
    cost: dict[str, float | None]
    """Means over seeds, by the names of `COSTS`; null where one of them did not log it."""


class SweepRecord(TypedDict):
    """One config and one suite; missing numbers are null."""

    config: str
    suite: str
    packs: int
    rules: NotRequired[int]
    """How many different things the packs hide."""
    pack_size: int
    reference: str
    """Label of a cell."""
    cells: list[CellRecord]
    warm_start: dict[str, Statistics]
    """What the reference's runs start from, at each temperature that was played."""
    notes: list[str]
    """What a reader must know: jobs that are not finished, budgets that differ."""


@dataclass(kw_only=True, eq=False)
class _Cell:
    label: str
    overrides: tuple[str, ...]
    played: dict[str, dict[int, Outcomes]] = field(default_factory=dict)
    """Condition (`trained`, `blanked_context`, `warm_start_t0.3`, ...) -> seed -> outcomes."""
    costs: dict[int, dict[str, float]] = field(default_factory=dict)
    """Seed -> what its training took."""
    in_training: dict[int, dict[str, tuple[float, float]]] = field(default_factory=dict)
    """Seed -> pass@K and entropy of its training, first and last."""
    notes: list[str] = field(default_factory=list)
    """Jobs that are missing, or there twice."""

    @property
    def trained(self) -> BySeed:
        """Empty where no job is finished."""
        return self.played.get("trained", {})

    @property
    def warm_starts(self) -> dict[str, BySeed]:
        """By their conditions: one for each temperature."""
        return {name: runs for name, runs in self.played.items() if WARM_START.fullmatch(name)}

    @property
    def best_start(self) -> BySeed:
        """The warm start at the temperature that solves most of these very packs, which favours it; empty where there is none."""
        whole = [runs for runs in self.warm_starts.values() if runs.keys() == self.trained.keys()]
        values = [(_table(runs).values, n) for n, runs in enumerate(whole)]
        means = [(float(of[~np.isnan(of)].mean()), n) for of, n in values if not np.isnan(of).all()]
        return whole[max(means)[1]] if means else {}


@dataclass(frozen=True, eq=False)
class _Table:
    values: Float[np.ndarray, "S P N"]
    """Success, or a difference of successes, by seed, pack and position."""
    rules: tuple[str, ...]
    """[P], what the packs hide; empty: no two hide the same."""
    within: tuple[float, float] = (0.0, 1.0)
    """Where a value can be. Student's interval may reach beyond, where no mean can be: it is cut there."""


def compare(roots: Sequence[Path], reference: str | None = None) -> list[SweepRecord]:
    """What is finished in these folders, a record for each config and suite."""
    jobs: dict[Path, JobRecord] = {}
    for root in roots:
        if not (found := read_jobs(root)):
            raise ConfigError("--table", root, "the folder of a sweep, with */job.json", "Run the sweep first.")
        jobs |= found
    records: list[SweepRecord] = []
    for config in dict.fromkeys(record.config for record in jobs.values()):
        fits = {folder: record for folder, record in jobs.items() if record.config == config}
        done = [folder for folder, record in fits.items() if record.finished]
        suites = dict.fromkeys(name for folder in done for name in read_results(folder / "evaluation.json")["suites"])
        played = ((suite, _cells(fits, suite)) for suite in suites)
        records += [_sweep(config, name, of, reference) for name, of in played if any(cell.trained for cell in of)]
    if not records:
        raise ConfigError("--table", roots[0], "a sweep with a finished, evaluated job", "Look into the jobs' log.txt.")
    return records


def page(sweeps: Sequence[SweepRecord], command: str) -> str:
    """The whole page; `command` is what wrote it."""
    return rendered("sweep.md.j2", sweeps=sweeps, costs=COSTS, command=command)


def summary(sweep: SweepRecord) -> tuple[list[str], list[list[str]]]:
    """Head and lines of the table that a terminal shows."""
    head = ["cell", "seeds", "mean", "gain", f"mean, minus {sweep['reference']}"]
    return head, [
        [
            cell["label"],
            str(len(cell["seeds"])),
            figure(cell["success"]["mean"]),
            figure(cell["success"]["gain"], "+.3f"),
            figure(None if (minus := cell["minus_reference"]) is None else minus["mean"], "+.3f"),
        ]
        for cell in sweep["cells"]
    ]


def _cells(fits: Mapping[Path, JobRecord], suite: str) -> list[_Cell]:
    """The cells of these jobs, in the order in which they were asked for."""
    ordered = sorted(fits.items(), key=lambda item: item[1].order)
    typed = {record.cell: record.overrides for _, record in reversed(ordered)}
    common = set.intersection(*map(set, typed.values()))
    cells: dict[str, _Cell] = {}
    for folder, record in ordered:
        overrides = typed[record.cell]
        label = ", ".join(one for one in overrides if one not in common) or "as configured"
        cell = cells.setdefault(record.cell, _Cell(label=label, overrides=overrides))
        if not (record.finished and _read_into(cell, folder, record.seed, suite)):
            reason = f": {record.error}" if record.error else ""
            what = "evaluated on this suite" if record.finished else "finished"
            cell.notes.append(f"{label}, seed {record.seed}, is not {what}, and not in the figures{reason}")
    names = [cell.label for cell in cells.values()]
    if twice := next((name for name in names if names.count(name) > 1), None):
        folders = ", ".join(str(f) for f, record in ordered if cells[record.cell].label == twice)
        raise DataError(f"{folders} are of two different configs, both with {twice}. Move those of one away.")
    return list(cells.values())


def _read_into(cell: _Cell, folder: Path, seed: int, suite: str) -> bool:
    """Add a finished run; False where it was not evaluated on the suite. Raises `DataError` for damaged files."""
    record = read_results(folder / "evaluation.json")["suites"].get(suite)
    conditions = ["trained", *(record["controls"] if record else ())]
    played = {name: read_packs(folder / "evaluation_packs.parquet", suite, name) for name in conditions}
    if played["trained"] is None:
        return False
    if seed in cell.trained:
        cell.notes.append(f"{cell.label}, seed {seed}, is in several folders; the figures are those of {folder}")
    for name, outcomes in played.items():
        if outcomes is not None:
            cell.played.setdefault(name, {})[seed] = outcomes
    metrics, _ = read_metrics(folder)
    cell.costs[seed], cell.in_training[seed] = _cost_of(metrics), ends(metrics)
    return True


def _cost_of(metrics: Mapping[str, dict[int, float]]) -> dict[str, float]:
    sampled, trained, train_s = (metrics.get(name, {}) for name in ("tokens/sampled", "tokens/trained", "time/train_s"))
    played = metrics.get("time/wait_s") or metrics.get("time/rollout_s", {})
    once = {tokens: played.get(step, math.nan) for step, tokens in reversed(sampled.items())}  # of a rollout's updates
    updates = 1 + max(sampled, default=math.nan)
    return {
        "updates": updates,
        "sampled_tokens": max(sampled.values(), default=math.nan),
        "trained_tokens": max(trained.values(), default=math.nan),
        # trainer.log_every_n_steps may leave updates out
        "train_s": sum(once.values()) + sum(train_s.values()) if len(train_s) == updates else math.nan,
    }


def _sweep(config: str, suite: str, cells: Sequence[_Cell], asked: str | None) -> SweepRecord:
    done = [cell for cell in cells if cell.trained]
    first = _reference(done, asked)
    some = next(iter(first.trained.values()))
    over = {cell.label: _difference(cell.trained, first.trained) for cell in done if cell is not first}
    return SweepRecord(
        config=config,
        suite=suite,
        packs=some.num_packs,
        rules=some.num_rules,
        pack_size=some.num_positions,
        reference=first.label,
        cells=[_record(cell, over.get(cell.label)) for cell in done],
        warm_start={name: _statistics(_table(runs)) for name, runs in first.warm_starts.items()},
        notes=[*_notes(cells), *_corrected(over)],
    )


def _reference(cells: Sequence[_Cell], asked: str | None) -> _Cell:
    """The one cell that was asked for, by some of its overrides; the first one where nothing was."""
    if asked is None:
        return cells[0]
    matching = [cell for cell in cells if asked == cell.label]
    matching = matching or [cell for cell in cells if set(asked.split(",")) <= set(cell.overrides)]
    if len(matching) != 1:
        labels = "; ".join(cell.label for cell in cells)
        raise ConfigError("--reference", asked, f"one cell out of: {labels}", f"It fits {len(matching)}.")
    return matching[0]


def _record(cell: _Cell, over: _Table | None) -> CellRecord:
    """`over`: its difference from the reference, where there is one."""
    above = _difference(cell.trained, cell.best_start)
    blanked = cell.played.get("blanked_context")
    trainings = list(cell.in_training.values())
    logged = [name for name in trainings[0] if all(name in one for one in trainings)]
    means = {name: sum(one[name] for one in cell.costs.values()) / len(cell.costs) for name in COSTS}
    return CellRecord(
        label=cell.label,
        seeds=sorted(cell.trained),
        success=_statistics(_table(cell.trained)),
        blanked=_statistics(_table(blanked))["mean"] if blanked else None,
        minus_reference=None if over is None else _statistics(over),
        minus_warm_start=None if above is None else _statistics(above),
        in_training={
            name: (fmean(one[name][0] for one in trainings), fmean(one[name][1] for one in trainings))
            for name in logged
        },
        cost={name: round(mean, 1) if 0 <= mean < _MOST else None for name, mean in means.items()},
    )


def _table(runs: BySeed, packs: Sequence[str] | None = None) -> _Table:
    """Of these packs; null: those that all seeds met."""
    chosen = _shared(runs.values()) if packs is None else packs
    rows = [runs[seed].rows(chosen) for seed in sorted(runs)]
    return _Table(np.stack([one.success for one in rows]), rows[0].rules)


def _difference(minuend: BySeed, subtrahend: BySeed) -> _Table | None:
    """One side minus the other; None where they share no seed or no pack."""
    seeds = minuend.keys() & subtrahend.keys()
    sides = [{seed: side[seed] for seed in seeds} for side in (minuend, subtrahend)]
    every = [outcomes for side in sides for outcomes in side.values()]
    packs = _shared(every)
    if not packs or len({outcomes.num_positions for outcomes in every}) > 1:
        return None
    own, other = (_table(side, packs) for side in sides)
    return _Table(own.values - other.values, own.rules, within=(-1.0, 1.0))


def _shared(every: Iterable[Outcomes]) -> list[str]:
    met = [set(outcomes.pack_ids) for outcomes in every]
    return sorted(set.intersection(*met)) if met else []


def _statistics(table: _Table) -> Statistics:
    values, rules, (low, high) = table.values, table.rules, table.within
    return Statistics(
        by_position=[_figure(values[:, :, n], rules, table.within) for n in range(values.shape[2])],
        mean=_figure(values.mean(axis=2), rules, table.within),
        gain=_figure(values[:, :, -1] - values[:, :, 0], rules, (low - high, high - low)),
    )


def _figure(values: Float[np.ndarray, "S P"], rules: Sequence[str], within: tuple[float, float]) -> Figure:
    estimate = crossed_estimate(values, rules)
    mean, ci95 = estimate.known, estimate.ci95
    rounded = None if ci95 is None else [round(min(max(end, within[0]), within[1]), 5) for end in ci95]
    return Figure(mean=None if mean is None else round(mean, 5), ci95=rounded, n=estimate.num)


def _corrected(over: Mapping[str, _Table | None]) -> Iterator[str]:
    """Which differences from the reference, by label, are left once all of them are asked for at once."""
    means = {name: (of.values.mean(axis=2), of.rules) for name, of in over.items() if of is not None}
    found = {name: crossed_estimate(*of).p_value for name, of in means.items()}
    p_values = {name: 1.0 if math.isnan(p) else p for name, p in found.items()}
    if len(p_values) > 1:
        left = "; ".join(holm(p_values)) or "none"
        yield (
            f"{len(p_values)} cells are compared with the reference, and each interval speaks of one comparison. "
            f"Differences in the mean that survive Holm's correction: {left}."
        )


def _notes(cells: Sequence[_Cell]) -> Iterator[str]:
    for cell in cells:
        yield from cell.notes
    spent = [cost["sampled_tokens"] for cell in cells for cost in cell.costs.values()]
    if spent and max(spent) > _EQUAL * min(spent):
        yield (
            f"Budgets are not equal: runs sampled {min(spent):,.0f} to {max(spent):,.0f} tokens. "
            "Set sampled_token_budget, and trainer.max_epochs=-1."
        )
    seeds = [sorted(cell.trained) for cell in cells if cell.trained]
    if any(one != seeds[0] for one in seeds):
        yield "Cells were run with different seeds; differences are over the seeds that both sides have."
    if min(map(len, seeds)) < 2:
        yield "Some cells have one seed; their intervals are over packs alone and say nothing about another training."
