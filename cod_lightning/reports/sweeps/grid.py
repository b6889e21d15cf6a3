"""Two choices crossed: rows against columns, and each row against the first within the same column."""

from collections.abc import Mapping, Sequence

from cod_lightning.evaluation.schema import Figure
from cod_lightning.reports.sweeps.cells import Cell, label_of
from cod_lightning.reports.sweeps.schema import Grid, GridRow
from cod_lightning.reports.sweeps.statistics import difference_table, statistics, success_table


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
    differences = {choice: _difference(row[choice], top[choice]) for choice in shared}
    return GridRow(
        label=label,
        seeds={choice: len(cell.runs) for choice, cell in row.items()},
        success={choice: statistics(success_table(cell.outcomes))["mean"] for choice, cell in row.items()},
        minus_first={choice: found for choice, found in differences.items() if found is not None},
    )


def _difference(cell: Cell, other: Cell) -> Figure | None:
    table = difference_table(cell.outcomes, other.outcomes)
    return None if table is None else statistics(table)["mean"]


def _rest(setting: Mapping[str, str], along: str) -> str:
    return label_of({key: choice for key, choice in setting.items() if key != along})
