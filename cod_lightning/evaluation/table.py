"""The table that a run ends with: success by position, with intervals, for the trained policy and its controls."""

from collections.abc import Callable, Iterator

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cod_lightning.evaluation.schema import PositionRecord, Results, SuiteRecord
from cod_lightning.evaluation.suite import PolicyLabel, warm_start_name
from cod_lightning.evaluation.wording import CAVEAT, sentences

_MISSING = "-"
Cell = Callable[[PositionRecord], Text]


def print_table(results: Results, console: Console, note: str = "") -> None:
    """Print one table for each suite, what it means, and the note (say, what the demonstrations already contained)."""
    for name, record in results["suites"].items():
        console.print()
        console.print(_title(name, record))
        console.print(_fitting(record, console))
        console.print()
        for sentence in sentences(record):
            console.print(_paragraph(sentence))
    console.print()
    for remark in filter(None, (note, CAVEAT)):
        console.print(_paragraph(remark, style="dim"))


def _paragraph(sentence: str, style: str = "") -> Padding:
    return Padding(Text(sentence, style=style), (0, 0, 0, 1))


def _title(name: str, record: SuiteRecord) -> Text:
    what = f" {name}: success by position on {record['packs']:,} packs of {record['pack_size']} from {record['env']}"
    return Text(what, style="bold")


def _fitting(record: SuiteRecord, console: Console) -> Table:
    """The most detailed table that the console is wide enough for."""
    tables = [_table(record, cell, heading="pos ") for cell in (_beside, _below, _alone)]
    unbounded = console.options.update(max_width=10_000)
    fits = (table for table in tables if Measurement.get(console, unbounded, table).maximum <= console.width)
    return next(fits, _table(record, _brief, heading=""))


def _table(record: SuiteRecord, cell: Cell, heading: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, collapse_padding=True, header_style="dim")
    table.add_column("", no_wrap=True)
    for position in range(record["pack_size"]):
        table.add_column(f"{heading}{position}", no_wrap=True)
    table.add_column("mean", justify="right", no_wrap=True)
    table.add_column("gain", justify="right", no_wrap=True)
    for label, positions in _rows(record):
        table.add_row(label, *map(cell, positions), _mean(positions), _gain(positions))
    return table


def _rows(record: SuiteRecord) -> Iterator[tuple[Text, list[PositionRecord]]]:
    """Trained, blanked context, warm start from cold to hot, scripted, then any other control."""
    controls = dict(record["controls"])
    yield Text(f"trained T={record['temperature']:g}", style="bold green"), record["positions"]
    if "blanked_context" in controls:
        yield Text("context blanked"), controls.pop("blanked_context")
    difference = record["paired"]["trained_minus_best_warm_start"]
    for temperature, key in sorted(_warm_starts(record)):
        best = difference is not None and temperature == difference["best_temperature"]
        label = Text(f"warm start T={temperature:g}{' *' if best else ''}", style="bold" if best else "")
        yield label, controls.pop(key)
    if PolicyLabel.SCRIPTED in controls:
        yield Text("scripted reference"), controls.pop(PolicyLabel.SCRIPTED)
    for key, positions in controls.items():
        yield Text(key), positions


def _warm_starts(record: SuiteRecord) -> list[tuple[float, str]]:
    """Temperature and key of every warm-start control."""
    prefix = "warm_start_t"
    own = warm_start_name(record["temperature"], record["temperature"])
    found = [(float(key.removeprefix(prefix)), key) for key in record["controls"] if key.startswith(prefix)]
    return found + [(record["temperature"], own)] * (own in record["controls"])


def _beside(position: PositionRecord) -> Text:
    return Text.assemble(_alone(position), " ", (_bounds(position), "dim"))


def _below(position: PositionRecord) -> Text:
    return Text.assemble(_alone(position), "\n", (_bounds(position), "dim"))


def _alone(position: PositionRecord) -> Text:
    success = position["success"]
    return Text(_MISSING if success is None else f"{success:.2f}")


def _brief(position: PositionRecord) -> Text:
    success = position["success"]
    return Text(_MISSING if success is None else _short(success))


def _bounds(position: PositionRecord) -> str:
    ci95 = position["success_ci95"]
    return "" if ci95 is None else f"{_short(ci95[0])}-{_short(ci95[1])}"


def _short(fraction: float) -> str:
    """Two decimals without the leading zero."""
    return f"{fraction:.2f}".removeprefix("0")


def _mean(positions: list[PositionRecord]) -> Text:
    successes = [position["success"] for position in positions]
    present = [success for success in successes if success is not None]
    return Text(f"{sum(present) / len(present):.2f}" if len(present) == len(successes) else _MISSING)


def _gain(positions: list[PositionRecord]) -> Text:
    first, last = positions[0]["success"], positions[-1]["success"]
    return Text(_MISSING if first is None or last is None else f"{last - first:+.2f}")
