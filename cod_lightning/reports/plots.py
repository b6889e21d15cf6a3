"""The report's curves as files for papers: success by position and training curves, each as PNG and as SVG."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cod_lightning.reports.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3
"""Panels beside each other at most."""
_STYLES = {"trained": "-", "context": ":", "warm_start": "--", "reference": "-.", "other": (0, (1, 2))}


def write_plots(runs: Sequence[Run], beside: Path) -> list[Path]:
    """Write `STEM_success` and `STEM_training` beside the report, as far as there is something to draw."""
    found = {"success": success_figure(runs), "training": training_figure(runs)}
    written: list[Path] = []
    for name, figure in found.items():
        if figure is not None:
            for ending in ("png", "svg"):
                written.append(beside.with_name(f"{beside.stem}_{name}.{ending}"))
                figure.savefig(written[-1])
    return written


def success_figure(runs: Sequence[Run]) -> "Figure | None":
    """Success by position with 95 % intervals: a panel for each suite; None where nothing was evaluated."""
    from matplotlib.ticker import MaxNLocator

    names = list(dict.fromkeys(name for run in runs for name in run.suites))
    if not names:
        return None
    figure, panels = _grid(len(names), (6.4, 3.6))
    for name, axes in zip(names, panels, strict=True):
        for index, run in enumerate(runs):
            rows = run.suites[name]["rows"] if name in run.suites else []
            for place, row in enumerate(rows):
                label = row["label"].replace(" *", " (its best)")
                several = len(runs) > 1
                _condition(
                    axes,
                    row,
                    label=f"{run.name}: {label}" if several else label,
                    color=f"C{index if several else place}",
                )
        axes.set(xlabel="position in the pack", ylabel="success", ylim=(0, 1.02), title=name)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def training_figure(runs: Sequence[Run]) -> "Figure | None":
    """Every panel of the training curves; None where there are none."""
    titles = list(dict.fromkeys(title for run in runs for title in run.panels))
    if not titles:
        return None
    figure, panels = _grid(len(titles), (3.6, 2.7))
    for title, axes in zip(titles, panels, strict=True):
        for index, run in enumerate(runs):
            lines = run.panels.get(title, [])
            for number, line in enumerate(lines):
                label = ": ".join(filter(None, (run.name if len(runs) > 1 else "", line.label)))
                style = ("-", "--", ":", "-.")[number % 4] if len(runs) > 1 else "-"
                colour = f"C{index if len(runs) > 1 else number}"
                axes.plot(line.x, line.y, linestyle=style, color=colour, linewidth=1.2, label=label or None)
        axes.set(xlabel="step", title=title)
        axes.title.set_fontsize("medium")
        if title.startswith(("Success", "Contexts that parsed")):
            axes.set_ylim(0, 1.02)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False, fontsize="x-small")
    return figure


def _condition(axes: "Axes", row: dict[str, Any], **style: Any) -> None:
    known = [(at, value) for at, value in enumerate(row["success"]) if value is not None]
    if not known:
        return
    x, y = zip(*known, strict=True)
    bounds = [row["success_ci95"][at] or (value, value) for at, value in known]
    spread = [
        [max(0.0, value - low) for value, (low, _) in zip(y, bounds, strict=True)],
        [max(0.0, high - value) for value, (_, high) in zip(y, bounds, strict=True)],
    ]
    axes.errorbar(x, y, yerr=spread, marker="o", markersize=4, capsize=2.5, linestyle=_STYLES[row["kind"]], **style)


def _grid(count: int, size: tuple[float, float]) -> "tuple[Figure, list[Axes]]":
    """A figure with that many panels of that size in inches."""
    from matplotlib.figure import Figure

    columns = min(count, _COLUMNS)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), dpi=150, layout="constrained")
    return figure, [figure.add_subplot(rows, columns, index + 1) for index in range(count)]
