"""Statistics of cells: tables over seeds and packs, cut to what both sides share, turned into figures with intervals."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from cod_lightning.evaluation.crossed import crossed_estimate
from cod_lightning.evaluation.intervals import Estimate
from cod_lightning.evaluation.outcomes import Outcomes
from cod_lightning.evaluation.schema import Figure
from cod_lightning.reports.sweeps.schema import Statistics

BySeed = Mapping[int, Outcomes]
"""Seed -> what came of the packs."""


@dataclass(frozen=True, eq=False)
class Table:
    """Success, or a difference of successes, by seed, pack and position, with what the packs hide."""

    values: Float[np.ndarray, "S P N"]
    rules: tuple[str, ...]
    """[P]; empty: no two hide the same."""

    def minus(self, other: "Table") -> "Table":
        """The difference from another table of these seeds and packs."""
        return Table(self.values - other.values, self.rules)


def success_table(runs: BySeed, seeds: list[int] | None = None, packs: list[str] | None = None) -> Table:
    """Success by seed, pack and position, of those seeds and packs; null: all seeds, and the packs that all of them met."""
    chosen = sorted(runs) if seeds is None else seeds
    shared = shared_packs([runs]) if packs is None else packs
    rows = [runs[seed].rows(shared) for seed in chosen]
    return Table(np.stack([one.success for one in rows]), rows[0].rules)


def shared_packs(sides: list[BySeed]) -> list[str]:
    """Packs that every run of every side met."""
    known = [set(outcomes.pack_ids) for side in sides for outcomes in side.values()]
    return sorted(set.intersection(*known)) if known else []


def difference_table(minuend: BySeed, subtrahend: BySeed) -> Table | None:
    """Success of one side minus that of the other, by seed, pack and position; None where they share no seed or no pack."""
    sides = [minuend, subtrahend]
    seeds = sorted(minuend.keys() & subtrahend.keys())
    if not seeds:
        return None
    packs = shared_packs([{seed: side[seed] for seed in seeds} for side in sides])
    if not packs or len({side[seeds[0]].num_positions for side in sides}) > 1:
        return None
    return success_table(minuend, seeds, packs).minus(success_table(subtrahend, seeds, packs))


def statistics(table: Table) -> Statistics:
    """By position, in the mean over positions, and of the gain."""
    values = table.values
    return Statistics(
        by_position=[figure(crossed_estimate(values[:, :, n], table.rules)) for n in range(values.shape[2])],
        mean=figure(mean_over_positions(table)),
        gain=figure(crossed_estimate(values[:, :, -1] - values[:, :, 0], table.rules)),
    )


def mean_over_positions(table: Table) -> Estimate:
    """In the mean over positions, with its p-value."""
    return crossed_estimate(table.values.mean(axis=2), table.rules)


def figure(estimate: Estimate) -> Figure:
    """As it stands in the file."""
    mean, ci95 = estimate.known, estimate.ci95
    rounded = None if ci95 is None else [round(end, 5) for end in ci95]
    return Figure(mean=None if mean is None else round(mean, 5), ci95=rounded, n=estimate.num)
