"""The comparison as curves, PNG and SVG: success by position, and success on validation packs by sampled tokens."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cod_lightning.evaluation.schema import Figure
from cod_lightning.reports.sweeps.page import plot_name
from cod_lightning.reports.sweeps.schema import CellRecord, SweepRecord, SweepResults
from cod_lightning.whole_file import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


def write_plots(results: SweepResults, stem: Path) -> list[Path]:
    """A drawing for each sweep: a column for each combination of all keys but the first, a line for each choice in that, and the
    reference in grey where it is not among them."""
    written: list[Path] = []
    for sweep in results["sweeps"]:
        written += write_figure(stem.with_name(f"{stem.name}_{plot_name(sweep)}"), comparison(sweep))
    return written


def comparison(sweep: SweepRecord) -> "Drawing":
    """Upper row: by position; lower row: by sampled tokens."""
    from matplotlib.figure import Figure as Drawing
    from matplotlib.ticker import MaxNLocator

    columns = _columns(sweep)
    drawing = Drawing(figsize=(max(5.2, 3.6 * len(columns)), 6.0), dpi=150, layout="constrained")
    panels = drawing.subplots(2, len(columns), squeeze=False, sharey="row")
    colours: dict[str, str] = {}
    reference = next((cell for cell in sweep["cells"] if cell["label"] == sweep["reference"]), None)
    for at, (title, cells) in enumerate(columns.items()):
        apart = [] if reference is None or reference in cells else [reference]
        for cell in [*apart, *cells]:
            line = "reference" if cell in apart else _line(cell, sweep)
            colour = "0.6" if cell in apart else colours.setdefault(line, f"C{len(colours) % 10}")
            success, curve = cell["success"]["by_position"], cell["curve"]
            _draw(panels[0, at], list(range(len(success))), success, line, colour)
            _draw(panels[1, at], curve["tokens"], curve["success"], line, colour)
        panels[0, at].set(xlabel="position in the pack", title=title)
        panels[0, at].xaxis.set_major_locator(MaxNLocator(integer=True))
        panels[1, at].set(xlabel="sampled tokens")
        lower = bool(panels[1, at].get_legend_handles_labels()[1])  # no run may have had a validation
        panels[int(lower), at].legend(frameon=False, fontsize="small")
    panels[0, 0].set_ylabel("success, held-out packs")
    panels[1, 0].set_ylabel("success, validation packs")
    drawing.suptitle(f"{sweep['config']}, suite {sweep['suite']}", fontsize="medium")
    return drawing


def _columns(sweep: SweepRecord) -> dict[str, list[CellRecord]]:
    found: dict[str, list[CellRecord]] = {}
    for cell in sweep["cells"]:
        rest = [f"{key}={cell['setting'][key]}" for key in sweep["varied"][1:]]
        found.setdefault("\n".join(rest), []).append(cell)
    return found


def _line(cell: CellRecord, sweep: SweepRecord) -> str:
    return f"{sweep['varied'][0]}={cell['setting'][sweep['varied'][0]]}" if sweep["varied"] else cell["label"]


def _draw(axes: "Axes", x: Sequence[float], figures: Sequence[Figure], label: str, colour: str) -> None:
    """A line through the means, its intervals as a band."""
    known = [(at, one["mean"], one["ci95"] or [one["mean"]] * 2) for at, one in zip(x, figures, strict=True)]
    known = [(at, mean, ends) for at, mean, ends in known if mean is not None]
    if known:
        places, means, ends = zip(*known, strict=True)
        axes.plot(places, means, marker="o", markersize=3, linewidth=1.3, color=colour, label=label)
        axes.fill_between(
            places, [low for low, _ in ends], [high for _, high in ends], color=colour, alpha=0.15, linewidth=0
        )
