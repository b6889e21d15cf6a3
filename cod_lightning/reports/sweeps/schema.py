"""`sweep_results.json`: the runs of a sweep side by side. Missing numbers are null."""

from typing import Any, NotRequired, TypedDict

from cod_lightning.evaluation.schema import Figure


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
    setting: dict[str, str]
    """What tells it from the sweep's other cells."""
    command: str
    """Runs it again."""
    seeds: list[int]
    """Finished."""
    not_finished: list[int]
    success: Statistics
    blanked: Figure | None
    """Mean over positions with the context hidden."""
    minus_reference: Statistics | None
    """Paired by seed and pack."""
    minus_warm_start: Statistics | None
    """At the temperature that is best for it, paired by seed and pack."""
    cost: dict[str, Any]
    """Means over seeds of what a run took, by the names of `cells.COSTS`, and `sampled_tokens_range`, the smallest and largest of a
    run; null where one of them did not log it."""


class WarmStartRecord(TypedDict):
    """What cells start from, at each temperature that was played, over seeds and packs."""

    best_temperature: str
    """By its mean on these very packs, which can only favour it."""
    temperatures: dict[str, Statistics]


class SweepRecord(TypedDict):
    """One config and one suite."""

    config: str
    suite: str
    packs: int
    rules: NotRequired[int]
    """How many different things the packs hide."""
    pack_size: int
    varied: list[str]
    reference: str
    """Label of a cell."""
    cells: list[CellRecord]
    warm_start: WarmStartRecord | None
    notes: list[str]
    """What a reader must know: jobs that failed, budgets that differ."""


class SweepResults(TypedDict):
    """The whole file."""

    sweeps: list[SweepRecord]
