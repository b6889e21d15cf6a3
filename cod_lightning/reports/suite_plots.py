"""What an evaluation found, as matplotlib figures: a panel for each suite."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from cod_lightning.reports.run import RunFolder

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES = {"trained": "-", "context": ":", "warm_start": "--", "reference": "-.", "other": (0, (1, 2))}
_SIZE = (6.4, 3.6)
"""Of a panel, inches."""
_COLUMNS = 3
"""Panels beside each other at most."""
_WITHIN = 0.12
"""Distance of two runs' marks of one category."""


def success_figure(runs: Sequence[RunFolder]) -> "Figure | None":
    """Success by position with 95 % intervals; None where nothing was evaluated."""

    def draw(axes: "Axes", name: str) -> None:
        for run, place, row in _rows(runs, name, "rows"):
            values, intervals = row["success"], row["success_ci95"]
            _line(axes, range(len(values)), values, intervals, **_style(runs, run, place, row))
        _finish(axes, "position in the pack", "success", title=name, ylim=(0, 1.02))

    return _panels(runs, "rows", draw)


def regret_figure(runs: Sequence[RunFolder]) -> "Figure | None":
    """Reward of the oracle minus that of the trained policy, by position; None where no oracle played."""

    def draw(axes: "Axes", name: str) -> None:
        for number, run, suite in _own(runs, name, "regret"):
            regret = suite["regret"]
            _line(axes, range(len(regret["y"])), regret["y"], regret["ci95"], color=f"C{number}", label=run.name)
        axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
        _finish(axes, "position in the pack", "regret in reward", title=f"{name}: regret to the oracle")

    return _panels(runs, "regret", draw)


def recovery_figure(runs: Sequence[RunFolder]) -> "Figure | None":
    """Success around the first task under the new rule, at 0; None where no rule changed."""

    def draw(axes: "Axes", name: str) -> None:
        for run, place, row in _rows(runs, name, "recovery"):
            offsets = runs[run].suites[name]["recovery"]["offsets"]
            _line(axes, offsets, row["y"], row["ci95"], **_style(runs, run, place, row))
        axes.axvline(-0.5, color="0.4", linewidth=1, linestyle=(0, (4, 3)), zorder=0)
        _finish(axes, "tasks since the change", "success", title=f"{name}: the rule changes", ylim=(0, 1.02))

    return _panels(runs, "recovery", draw)


def change_figure(runs: Sequence[RunFolder]) -> "Figure | None":
    """What the change does to the trained policy's success, paired within packs; None where no rule changed."""

    def draw(axes: "Axes", name: str) -> None:
        shown = list(_own(runs, name, "recovery"))
        for place, (number, run, suite) in enumerate(shown):
            found, shift = suite["recovery"]["differences"], (place - (len(shown) - 1) / 2) * _WITHIN
            style = {"color": f"C{number}", "label": run.name, "linestyle": "none"}
            _line(axes, [at + shift for at in range(len(found["y"]))], found["y"], found["ci95"], **style)
        axes.axhline(0, color="0.6", linewidth=0.8, zorder=0)
        _finish(axes, "", "difference in success", title=f"{name}: paired differences, trained policy", whole=False)
        axes.set_xticks([0, 1], ["first task after\n- last before", "last task of the pack\n- first after"])
        axes.set_xlim(-0.6, 1.6)

    return _panels(runs, "recovery", draw)


def _panels(runs: Sequence[RunFolder], part: str, draw: "Callable[[Axes, str], None]") -> "Figure | None":
    """A panel, drawn by `draw`, for each suite of which some run has that part; None where there is none."""
    names = list(dict.fromkeys(name for run in runs for name, suite in run.suites.items() if suite[part]))
    if not names:
        return None
    figure, panels = grid(len(names), _SIZE)
    for name, axes in zip(names, panels, strict=True):
        draw(axes, name)
    return figure


def _own(runs: Sequence[RunFolder], name: str, part: str) -> Iterator[tuple[int, RunFolder, dict[str, Any]]]:
    """The runs that have that part of the suite."""
    for number, run in enumerate(runs):
        if name in run.suites and run.suites[name][part]:
            yield number, run, run.suites[name]


def _rows(runs: Sequence[RunFolder], name: str, part: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Number of the run, place of the row in its suite's table, and the row."""
    for number, _, suite in _own(runs, name, part):
        labels = [row["label"] for row in suite["rows"]]
        rows = suite["rows"] if part == "rows" else suite[part]["rows"]
        yield from sorted(((number, labels.index(row["label"]), row) for row in rows), key=lambda one: one[1])


def _style(runs: Sequence[RunFolder], number: int, place: int, row: dict[str, Any]) -> dict[str, Any]:
    """A colour for each condition of a single run, for each run of several."""
    label, several = row["label"].replace(" *", " (its best)"), len(runs) > 1
    label = f"{runs[number].name}: {label}" if several else label
    return {"label": label, "color": f"C{number if several else place}", "linestyle": _STYLES[row["kind"]]}


def _line(axes: "Axes", x: Sequence[float], y: Sequence[float | None], ci95: Sequence[Any], **style: Any) -> None:
    known = [
        (at, value, bounds or (value, value)) for at, value, bounds in zip(x, y, ci95, strict=True) if value is not None
    ]
    if not known:
        return
    spread = [
        [max(0.0, value - low) for _, value, (low, _) in known],
        [max(0.0, high - value) for _, value, (_, high) in known],
    ]
    at, values = [one[0] for one in known], [one[1] for one in known]
    axes.errorbar(at, values, yerr=spread, marker="o", markersize=4, capsize=2.5, **style)


def _finish(axes: "Axes", xlabel: str, ylabel: str, *, whole: bool = True, **settings: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel=xlabel, ylabel=ylabel, **settings)
    if whole:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))


def grid(count: int, size: tuple[float, float]) -> "tuple[Figure, list[Axes]]":
    """A figure with that many panels of that size in inches."""
    from matplotlib.figure import Figure

    columns = min(count, _COLUMNS)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(size[0] * columns, size[1] * rows), dpi=150, layout="constrained")
    return figure, [figure.add_subplot(rows, columns, index + 1) for index in range(count)]
