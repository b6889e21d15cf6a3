"""Line charts, laid out: numbers become places, ticks and paths, which `page/page.html.j2` draws as SVG."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cod_lightning.evaluation.schema import Interval

_RIGHT, _TOP, _BOTTOM = 12, 10, 34
_MOST = 1e15
"""Axes end there, whatever the values are."""


@dataclass(slots=True, kw_only=True)
class Line:
    """One line of a chart."""

    label: str
    """What tells it from the other lines of its chart; empty where it is the only one."""
    x: list[int]
    y: list[float | None]
    ci95: Sequence[Interval] = ()
    colour: str = "var(--c0)"
    dash: str = ""
    strong: bool = False


def run_colour(index: int) -> str:
    """Of a run, or of a line that has no colour of its own."""
    return f"var(--c{index % 8})"


def chart(
    title: str, lines: Sequence[Line], *, bounds: tuple[float, float] | None = None, large: bool = False
) -> dict[str, Any]:
    """For the template; a large chart is over positions and has marks and intervals side by side, another is over steps."""
    drawn = [line for line in lines if any(y is not None for y in line.y)]
    if not drawn:
        return {"lines": []}
    ends = [end for line in drawn for ci95 in line.ci95 for end in ci95 or ()]
    values = [
        max(-_MOST, min(_MOST, y))
        for y in (*ends, *(bounds or ()), *(y for line in drawn for y in line.y))
        if y is not None
    ]
    first, last = min(min(line.x) for line in drawn), max(max(line.x) for line in drawn)
    x0, x1 = (first - 1, last + 1) if first == last else (first, last)
    wide, high, margin = (540, 310, 18) if large else (330, 200, 0)
    low, most = min(values), max(values)
    rows, bottom = _ticks(0 if 0 < low < 0.6 * most else low, most), high - _BOTTOM
    y0, y1 = rows[0][1], rows[-1][1]
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
        known = [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None]
        places = [(px(x) + shift, None if y is None else py(y)) for x, y in zip(line.x, line.y, strict=True)]
        whiskers = [
            f"M{x:g} {py(ci95[0])}V{py(ci95[1])}" for (x, _), ci95 in zip(places, line.ci95, strict=False) if ci95
        ]
        made.append({"line": line, "path": _path(places), "whiskers": "".join(whiskers), "points": json.dumps(known)})
    return {
        "title": title,
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


def _ticks(low: float, high: float, whole: bool = False) -> list[tuple[str, float]]:
    """Labels and values, the first at most `low` and the last at least `high`."""
    from matplotlib.ticker import MaxNLocator

    locator = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=whole)
    values = map(float, locator.tick_values(*locator.nonsingular(low, high)))
    return [(f"{value:.12g}", value) for value in values]


def _path(places: Sequence[tuple[float, float | None]]) -> str:
    """Of an SVG; a missing point is a gap, and a point between two gaps a dot."""
    pieces, pen = list[str](), "M"
    for x, y in places:
        if y is not None:
            pieces.append(f"{pen}{x:g} {y:g}h0")
        pen = "M" if y is None else "L"
    return "".join(pieces)
