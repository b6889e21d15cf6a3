"""The charts of a report: suites' success by position, recovery, training curves; of one run, or of several side by side."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from cod_lightning.reports.charts import Line, chart, position_colour, run_colour
from cod_lightning.reports.run import RunFolder

_DASHES = {"trained": "", "context": "2 4", "warm_start": "7 4", "reference": "10 3 2 3", "other": "1 3"}
_OTHERS = (0, 1, 3, 4, 5, 7)
"""Colours of rows that are neither the trained policy's, which alone is green, nor with a hidden context."""
_PANEL_DASHES = ("", "7 3", "2 3", "9 3 2 3")
_LARGE: dict[str, Any] = {"bounds": (0.0, 1.0), "large": True}
_SHARES = re.compile("Success|Contexts that parsed")


def suites_of(runs: Sequence[RunFolder]) -> dict[str, dict[str, Any]]:
    """By name: its charts, and of each run that has the suite its index, its name and the suite."""
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for run in runs for name in run.suites):
        by_position, around = (list(_lines(runs, name, of)) for of in ("success", "recovery"))
        charts = [chart("Success by position in the pack, with 95 % intervals", by_position, "position", **_LARGE)]
        if around:
            title, mark = "Success around each pack's own change of the rule", (-0.5, "rule changes")
            charts.append(chart(title, around, "tasks since the change", mark=mark, **_LARGE))
        tables = [(index, run.name, run.suites[name]) for index, run in enumerate(runs) if name in run.suites]
        found[name] = {"charts": charts, "tables": tables}
    return found


def panels_of(runs: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """Training curves; of several runs a colour is a run, else a line."""
    several = len(runs) > 1
    found: list[dict[str, Any]] = []
    for title in dict.fromkeys(title for run in runs for title in run.panels):
        of_title = [(index, run, line) for index, run in enumerate(runs) for line in run.panels.get(title, [])]
        labels = list(dict.fromkeys(line.label for *_, line in of_title))
        lines: list[Line] = []
        for index, run, line in of_title:
            place = labels.index(line.label)
            own = position_colour(place, len(labels)) if line.label.startswith("position") else run_colour(place)
            label = ": ".join(filter(None, [run.name, line.label])) if several else line.label
            colour, dash = (run_colour(index), _PANEL_DASHES[place % 4]) if several else (own, "")
            lines.append(Line(label=label, x=line.x, y=line.y, colour=colour, dash=dash))
        made = chart(title, lines, bounds=(0.0, 1.0) if _SHARES.match(title) else None)
        found.append(made | {"is_zero": not any(y for line in lines for y in line.y)})
    return found


def _lines(runs: Sequence[RunFolder], name: str, of: str) -> Iterator[Line]:
    """Of the warm start its best temperature alone, of several runs trained policies and their hidden contexts; tables have all."""
    several = len(runs) > 1
    rows = [
        (index, run.name, row) for index, run in enumerate(runs) for row in run.suites.get(name, {"rows": []})["rows"]
    ]
    best = [one for one in rows if one[2]["kind"] != "warm_start" or one[2]["label"].endswith("*")]
    for place, (index, run, row) in enumerate(best):
        is_trained, is_blanked = row["kind"] == "trained", row["label"] == "blanked context"
        if row[of] is None or (several and not is_trained and not (is_blanked and of == "success")):
            continue
        own = "var(--good)" if is_trained else "var(--grey)" if is_blanked else run_colour(_OTHERS[(place - 1) % 6])
        yield Line(
            label=f"{run}: {row['label']}" if several else row["label"],
            **row[of],
            colour=run_colour(index) if several else own,
            dash=_DASHES[row["kind"]],
            weight="strong" if is_trained else "pale" if several else "",
        )
