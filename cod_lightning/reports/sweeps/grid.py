"""Crossed choices: two keys as a grid of rows and columns, and what a choice does on the average over all other keys."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from cod_lightning.reports.sweeps.cells import Cell, label_of
from cod_lightning.reports.sweeps.schema import Effect, Grid, GridRow
from cod_lightning.reports.sweeps.statistics import (
    BySeed,
    Table,
    difference_table,
    shared_packs,
    shared_seeds,
    statistics,
    success_table,
)


def grid_of(cells: Sequence[Cell], first: Cell) -> Grid | None:
    """The key with the most choices goes along the columns; None where nothing is crossed.

    Rows are what is left of the settings, the reference's at the top. Differences are paired by seed and pack.
    """
    if len(first.setting) < 2:
        return None
    choices = {key: list(dict.fromkeys(cell.setting[key] for cell in cells)) for key in first.setting}
    along = max(choices, key=lambda key: len(choices[key]))
    rows: dict[str, dict[str, Cell]] = {_rest(first.setting, along): {}}
    for cell in cells:
        rows.setdefault(_rest(cell.setting, along), {})[cell.setting[along]] = cell
    if sum(len(row) > 1 for row in rows.values()) < 2:
        return None
    top = rows[_rest(first.setting, along)]
    return Grid(key=along, columns=choices[along], rows=[_row(label, row, top) for label, row in rows.items()])


def _row(label: str, row: Mapping[str, Cell], top: Mapping[str, Cell]) -> GridRow:
    shared = [choice for choice in row if choice in top and row is not top]
    tables = {choice: difference_table(row[choice].outcomes, top[choice].outcomes) for choice in shared}
    return GridRow(
        label=label,
        seeds={choice: len(cell.runs) for choice, cell in row.items()},
        success={choice: statistics(success_table(cell.outcomes))["mean"] for choice, cell in row.items()},
        minus_first={choice: statistics(table)["mean"] for choice, table in tables.items() if table is not None},
    )


def _rest(setting: Mapping[str, str], along: str) -> str:
    return label_of({key: choice for key, choice in setting.items() if key != along})


def effects(
    settings: Mapping[str, dict[str, str]], outcomes: Mapping[str, BySeed], reference: Mapping[str, str]
) -> list[Effect]:
    """Each choice against the reference's; none where one key varies only, or where a combination is missing.

    Cells are weighed alike, and all are cut to the seeds and packs that all have.
    """
    axes = {key: list(dict.fromkeys(one[key] for one in settings.values())) for key in reference}
    by_setting = {tuple(one.values()): label for label, one in settings.items()}
    if len(axes) < 2 or set(by_setting) != set(product(*axes.values())):
        return []
    sides = list(outcomes.values())
    seeds = shared_seeds(sides)
    packs = shared_packs([{seed: side[seed] for seed in seeds} for side in sides])
    if not seeds or not packs:
        return []
    tables = {label: success_table(side, seeds, packs) for label, side in outcomes.items()}
    rules = next(iter(tables.values())).rules
    found: list[Effect] = []
    for key, choices in axes.items():
        mean = {
            choice: np.mean([tables[label].values for label, one in settings.items() if one[key] == choice], axis=0)
            for choice in choices
        }
        against, cells = reference[key], len(settings) // len(choices)
        for choice in choices:
            if choice != against:
                difference = statistics(Table(mean[choice] - mean[against], rules))
                found.append(Effect(key=key, choice=choice, against=against, cells=cells, difference=difference))
    return found
