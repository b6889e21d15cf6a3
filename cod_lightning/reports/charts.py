"""Line charts, laid out: numbers become places, ticks and paths, which `page/page.html.j2` draws as SVG."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from cod_lightning.evaluation.schema import Interval

_RIGHT, _TOP, _BOTTOM = 12, 10, 34
_MOST, _LEAST = 1e15, 1e-12
"""Larger values are not drawn, smaller ones count as 0."""


@dataclass(slots=True, kw_only=True)
class Line:
    """One line of a chart."""

    label: str
    """What tells it from the other lines of its chart; empty where it is the only one."""
    x: list[int]
    y: list[float | None]
    ci95: Sequence[Interval] = ()
    n: Sequence[int] = ()
    """Packs behind each point."""
    colour: str = "var(--c0)"
    dash: str = ""
    weight: str = ""
    """strong, pale or neither."""


def run_colour(index: int) -> str:
    """Of a run, or of a line that has no colour of its own."""
    return f"var(--c{index % 8})"


def position_colour(place: int, count: int) -> str:
    """From violet over blue and green to amber, in as many steps as there are positions."""
    hue = 270 - round(235 * place / (count - 1)) if count > 1 else 35
    return f"light-dark(hsl({hue} 62% 42%), hsl({hue} 62% 66%))"


def chart(
    title: str,
    lines: Sequence[Line],
    x_label: str = "step",
    *,
    bounds: tuple[float, float] | None = None,
    large: bool = False,
) -> dict[str, Any]:
    """For the template; a large chart has marks and intervals side by side."""
    usable = (replace(line, y=list(map(_usable, line.y))) for line in lines)
    drawn = [line for line in usable if any(y is not None for y in line.y)]
    if not drawn:
        return {"title": title, "large": large, "lines": []}
    ends = [end for line in drawn for ci95 in line.ci95 for end in ci95 or ()]
    values = [y for y in (*map(_usable, ends), *(y for line in drawn for y in line.y)) if y is not None]
    first, last = min(min(line.x) for line in drawn), max(max(line.x) for line in drawn)
    x0, x1 = (first - 1, last + 1) if first == last else (first, last)
    y0, y1 = _extent(min(values), max(values), bounds)
    wide, high, margin = (540, 310, 18) if large else (330, 200, 0)
    rows, bottom = _ticks(y0, y1), high - _BOTTOM
    left = max(46, 14 + (10 if large else 7) * max(len(text) for text, _ in rows))
    begin, end = left + margin, wide - _RIGHT - margin

    def px(x: float) -> float:
        return round(begin + (x - x0) / (x1 - x0) * (end - begin), 2)

    def py(y: float) -> float:
        return round(bottom - (y - y0) / (y1 - y0) * (bottom - _TOP), 2)

    aside = min(3.5, 26 / len(drawn), 0.8 * (px(1) - px(0)) / len(drawn)) if large else 0
    made: list[dict[str, Any]] = []
    for index, line in enumerate(drawn):
        shift = (index - (len(drawn) - 1) / 2) * aside
        places = [(px(x) + shift, None if y is None else py(y)) for x, y in zip(line.x, line.y, strict=True)]
        marks = [
            {"x": x, "y": y, "ends": [py(end) for end in line.ci95[at] or ()], "said": _said(line, at, x_label)}
            for at, (x, y) in enumerate(places)
            if large and y is not None
        ]
        known = [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None]
        shown = {"line": line, "path": _path(places), "marks": marks, "points": json.dumps(known)}
        made.append(shown | {"last": f"{known[-1][1]:.4g}"})
    return {
        "title": title,
        "x_label": x_label,
        "large": large,
        "wide": wide,
        "high": high,
        "lines": made,
        "rows": [(text, py(y)) for text, y in rows],
        "columns": [(text, px(x)) for text, x in _ticks(x0, x1, whole=True) if first <= x <= last],
        "left": left,
        "right": wide - _RIGHT,
        "bottom": bottom,
        "x_scale": f"{begin} {end} {x0} {x1}",
    }


def _usable(y: float | None) -> float | None:
    return None if y is None or not abs(y) < _MOST else y if abs(y) > _LEAST else 0.0


def _extent(low: float, high: float, bounds: tuple[float, float] | None) -> tuple[float, float]:
    """What an axis shows: its bounds, and beyond them what lies there; without bounds all values, with 0 where it is near."""
    ends = bounds or (0.0,)
    if bounds is not None:
        low, high = min(low, bounds[0]), max(high, bounds[1])
    elif 0 < low < 0.6 * high:
        low = 0.0
    if low == high:
        low, high = (0.0, 1.0) if low == 0 else (min(0.0, 2 * low), max(0.0, 2 * low))
    room = (high - low) * 0.05
    return (low if low in ends else low - room), (high if high in ends else high + room)


def _ticks(low: float, high: float, whole: bool = False) -> list[tuple[str, float]]:
    """Labels and values."""
    from matplotlib.ticker import MaxNLocator, ScalarFormatter

    values = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=whole).tick_values(low, high)
    within = [value for value in values if low - 1e-9 * (high - low) <= value <= high + 1e-9 * (high - low)]
    formatter = ScalarFormatter(useOffset=False)
    formatter.set_scientific(False)
    formatter.create_dummy_axis()
    assert formatter.axis is not None
    formatter.axis.set_view_interval(low, high)
    return list(zip(formatter.format_ticks(within), within, strict=True))


def _path(places: Sequence[tuple[float, float | None]]) -> str:
    """Of an SVG; a missing point is a gap."""
    pieces, pen = list[str](), "M"
    for x, y in places:
        if y is not None:
            pieces.append(f"{pen}{x:g} {y:g}")
        pen = "M" if y is None else "L"
    return "".join(pieces)


def _said(line: Line, at: int, x_label: str) -> str:
    """A point in words."""
    ci95 = line.ci95[at]
    bounds = "" if ci95 is None else f" [{ci95[0]:.2f}, {ci95[1]:.2f}]"
    return f"{x_label} {line.x[at]}: {line.label} {line.y[at]:.3f}{bounds}, {line.n[at]:,} packs"
