"""The table that a run ends with: success by position, with intervals, for the trained policy and its controls."""

from collections.abc import Callable
from functools import partial

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cod_lightning.evaluation.schema import PositionRecord, Results, SuiteRecord
from cod_lightning.evaluation.view import packs_of, rows, shown_positions
from cod_lightning.evaluation.wording import CAVEAT, sentences

CellWriter = Callable[[PositionRecord], Text]


def print_table(results: Results, console: Console, note: str = "") -> None:
    """Print the note (for example, what the demonstrations already contained), and of each suite what it shows, then its table."""
    for remark in filter(None, (note, CAVEAT)):
        console.print(_paragraph(remark, style="dim"))
    for name, record in results["suites"].items():
        _print_suite(name, record, console)


def _print_suite(name: str, record: SuiteRecord, console: Console) -> None:
    console.print()
    what = f" {name}: success by position on {packs_of(record)} of {record['pack_size']} from {record['env']}"
    console.print(Text(what, style="bold"))
    if folded := [row for row in rows(record) if not row.main]:
        briefly = "; ".join(f"{row.label} {_number(row.mean)}" for row in folded)
        console.print(_paragraph(f"Also played, mean over positions: {briefly}.", style="dim"))
    for sentence in sentences(record):
        console.print(_paragraph(sentence))
    console.print()
    console.print(_fitting(record, console))


def _paragraph(sentence: str, style: str = "") -> Padding:
    return Padding(Text(sentence, style=style), (0, 0, 0, 1))


def _fitting(record: SuiteRecord, console: Console) -> Table:
    """The most detailed table that the console is wide enough for."""
    cells = (partial(_bounded, between=" "), partial(_bounded, between="\n"), lambda one: Text(_number(one["success"])))
    tables = [_table(record, cell, heading="pos ") for cell in cells]
    unbounded = console.options.update(max_width=10_000)
    fits = (table for table in tables if Measurement.get(console, unbounded, table).maximum <= console.width)
    return next(fits, _table(record, lambda position: Text(_short(position["success"])), heading=""))


def _table(record: SuiteRecord, cell: CellWriter, heading: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, collapse_padding=True, header_style="dim")
    table.add_column("", overflow="fold")  # where there is too little room, names break and numbers stay whole
    shown = shown_positions(record["pack_size"])
    for position in shown:
        table.add_column(f"{heading}{position}", no_wrap=True)
    table.add_column("mean", justify="right", no_wrap=True)
    table.add_column("gain", justify="right", no_wrap=True)
    table.add_column("malf", justify="right", no_wrap=True)
    for row in (row for row in rows(record) if row.main):
        style = "bold green" if row.key == "trained" else "bold" if row.best else ""
        cells = [cell(row.positions[position]) for position in shown]
        table.add_row(
            Text(row.label, style=style), *cells, _number(row.mean), _number(row.gain, sign=True), _short(row.malformed)
        )
    return table


def _bounded(position: PositionRecord, between: str) -> Text:
    bounds = "-".join(map(_short, position["success_ci95"] or ()))
    return Text.assemble(_number(position["success"]), between, (bounds, "dim"))


def _short(fraction: float | None) -> str:
    """Two decimals without the leading zero."""
    return _number(fraction).removeprefix("0")


def _number(value: float | None, *, sign: bool = False) -> str:
    return "-" if value is None else f"{value:+.2f}" if sign else f"{value:.2f}"
