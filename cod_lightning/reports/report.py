"""The data of a report: charts and tables of one run or of several side by side, and lifecycles, as many as a page can carry."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cod_lightning import __version__
from cod_lightning.files import no_run
from cod_lightning.markdown import visible
from cod_lightning.reports.charts import Line, chart, run_colour
from cod_lightning.reports.curves import Panels, read_curves
from cod_lightning.reports.lines import UNREAD, LifecycleFile, LogprobFile
from cod_lightning.reports.records import Record, Shelf
from cod_lightning.reports.suites import STALE, PlayedSuite, read_evaluation, run_names
from cod_lightning.rollout import policy_logprobs

MOST_READ = 48_000_000
"""Bytes of lifecycles that are read of all runs together; of more, whole groups are left out evenly, with a note in the report."""

_DASHES = {"trained": "", "context": "2 4", "warm_start": "7 4", "reference": "10 3 2 3", "other": "1 3"}
_SHARES = re.compile("Success|Contexts that parsed")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One run; its lifecycles are read from `files` when they are wanted."""

    name: str
    folder: Path
    suites: dict[str, PlayedSuite]
    panels: Panels
    files: tuple[LifecycleFile, ...]
    notes: list[str]


def _read(folder: Path, name: str) -> _Run:
    """The run in that folder. Raises `ConfigError` where there is none."""
    found = filter(Path.is_file, (folder / "lifecycles").glob("*.jsonl"))  # a pipe or a device would be read for ever
    lives = sorted((path for path in found if not path.name.startswith(f"{policy_logprobs.NAME}.")), key=_place)
    expected = [folder / file for file in ("config.yaml", "metrics.csv", "evaluation.json")]
    if not lives and not any(path.is_file() for path in expected):
        parts = "config.yaml, metrics.csv, evaluation.json or lifecycles/"
        raise no_run("report", folder, f"the folder of a run, with {parts}")
    suites, notes = read_evaluation(folder)
    panels, more = read_curves(folder)
    evaluated, newest = folder / "evaluation.json", folder / "checkpoints" / "last.ckpt"
    is_stale = evaluated.exists() and newest.exists() and evaluated.stat().st_mtime < newest.stat().st_mtime
    stale = [STALE.format("checkpoints/last.ckpt")] if is_stale else []
    none = [] if lives else ["There are no lifecycles/*.jsonl, so there is nothing to browse."]
    return _Run(
        name=name,
        folder=folder,
        suites=suites,
        panels=panels,
        files=tuple(map(LifecycleFile, lives)),
        notes=[*notes, *stale, *more, *none],
    )


def report_data(folders: Sequence[Path], most_read: int = MOST_READ) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what the page draws at once, the lifecycles to browse) of the runs in these folders."""
    runs = [_read(folder, name) for folder, name in zip(folders, run_names(folders), strict=True)]
    share = most_read / max(1, sum(file.path.stat().st_size for run in runs for file in run.files))
    shelf, files, about = Shelf(), list[Record](), list[Record]()
    for index, run in enumerate(runs):
        notes = list(run.notes)
        for file in run.files:
            logprobs, before = LogprobFile.beside(file.path), len(shelf.lifecycles)
            for group in file.groups(math.ceil(share * file.path.stat().st_size)):
                try:
                    shelf.add(len(files), group, logprobs)
                except (TypeError, ValueError, OverflowError, AttributeError, LookupError):
                    # It is well-formed, with texts for numbers and the like.
                    file.left_out["values of the wrong kind"] += len(group.group.lifecycles)
            shown = len(shelf.lifecycles) - before
            counts = {"lifecycles": shown + file.left_out[UNREAD], "shown": shown}
            files.append({"run": index, "label": visible(file.path.stem)} | counts)
            notes += _left_out(file, logprobs)
        about.append({"name": run.name, "folder": str(run.folder.resolve()), "notes": notes})
    return {
        "version": __version__,
        "runs": about,
        "suites": {name: _suite(runs, name) for name in dict.fromkeys(name for run in runs for name in run.suites)},
        "panels": [_panel(runs, title) for title in dict.fromkeys(title for run in runs for title in run.panels)],
        "files": files,
    }, {"strings": list(shelf.numbers), "packs": shelf.packs, "lifecycles": shelf.lifecycles}


def _left_out(file: LifecycleFile, logprobs: LogprobFile | None) -> Iterator[str]:
    """What was not read of a file and of what is beside it, in sentences."""
    for one in (file, logprobs) if logprobs else (file,):
        for reason, count in one.left_out.items():
            yield f"lifecycles/{one.path.name}: {count:,} {'line was' if count == 1 else 'lines were'} left out, {reason}."
    if logprobs and not logprobs.path.exists():
        yield f"No advantages and log-prob gaps: there is no lifecycles/{logprobs.path.name}."


def _suite(runs: Sequence[_Run], name: str) -> dict[str, Any]:
    """Its chart, and of each run that has the suite its index, its name and the suite."""
    tables = [(index, run.name, run.suites[name]) for index, run in enumerate(runs) if name in run.suites]
    lines, several = list[Line](), len(runs) > 1
    for index, run, suite in tables:
        of_several = [row for row in suite.rows if row.key in ("trained", "blanked_context")]
        of_one = [row for row in suite.rows if row.kind != "warm_start" or row.best]
        for row in of_several if several else of_one:  # tables have all
            lines.append(
                Line(
                    label=f"{run}: {row.label}" if several else row.label,
                    x=list(range(len(row.positions))),
                    y=[one["success"] for one in row.positions],
                    ci95=[one["success_ci95"] for one in row.positions],
                    colour=run_colour(index if several else len(lines)),
                    dash=_DASHES[row.kind],
                    strong=row.kind == "trained",
                )
            )
    title = "Success by position in the pack, with 95 % intervals"
    return {"chart": chart(title, lines, bounds=(0.0, 1.0), large=True), "tables": tables}


def _panel(runs: Sequence[_Run], title: str) -> dict[str, Any]:
    """A chart of training curves; of several runs a colour is a run, else a line."""
    of_title = [(index, run, line) for index, run in enumerate(runs) for line in run.panels.get(title, [])]
    labels, dashes = list(dict.fromkeys(line.label for *_, line in of_title)), [*_DASHES.values()]
    lines: list[Line] = []
    for index, run, line in of_title:
        place, label = labels.index(line.label), line.label
        colour, dash = place, place // 8
        if len(runs) > 1:
            label, colour, dash = ": ".join(filter(None, [run.name, label])), index, place
        lines.append(replace(line, label=label, colour=run_colour(colour), dash=dashes[dash % 5]))
    made = chart(title, lines, bounds=(0.0, 1.0) if _SHARES.match(title) else None)
    return made | {"is_zero": not any(y for line in lines for y in line.y)}


def _place(path: Path) -> tuple[bool, bool, str]:
    """What the trained policy did on held-out packs first, controls after the training itself."""
    is_trained, is_test = path.stem.endswith("_trained"), path.stem.startswith("test_")
    return not is_trained, is_test, path.name
