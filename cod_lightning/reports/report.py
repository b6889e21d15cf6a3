"""The data of a report: charts and tables of one run or of several side by side, and lifecycles, as many as a page can carry."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from cod_lightning import __version__
from cod_lightning.markdown import visible
from cod_lightning.reports.charts import Line, chart, position_colour, run_colour
from cod_lightning.reports.gaps import LogprobFile
from cod_lightning.reports.lines import LifecycleFile
from cod_lightning.reports.records import Record, Shelf
from cod_lightning.reports.run import RunFolder, read_run
from cod_lightning.reports.suites import run_names
from cod_lightning.types import StopReason

MOST_READ = 48_000_000
"""Bytes of lifecycles that are read of all runs together; of more, whole groups are left out evenly, with a note in the report."""

_WORDED = 0.95
"""Words are shown as tokens where this share of a file's turns has as many of both (a few may be cut off in a word)."""
_DASHES = {"trained": "", "context": "2 4", "warm_start": "7 4", "reference": "10 3 2 3", "other": "1 3"}
_OTHERS = (0, 1, 3, 4, 5, 7)
"""Colours of rows that are neither the trained policy's, which alone is green, nor with a hidden context."""
_PANEL_DASHES = ("", "7 3", "2 3", "9 3 2 3")
_LARGE: dict[str, Any] = {"bounds": (0.0, 1.0), "large": True}
_SHARES = re.compile("Success|Contexts that parsed")


def read_runs(folders: Sequence[Path]) -> list[RunFolder]:
    """The runs in these folders."""
    return [read_run(folder, name) for folder, name in zip(folders, run_names(list(folders)), strict=True)]


def report_data(runs: Sequence[RunFolder], most_read: int = MOST_READ) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what the page draws at once, the lifecycles to browse); `config` has the settings in which the runs differ."""
    share = most_read / max(1, sum(file.path.stat().st_size for run in runs for file in run.files))
    files: list[dict[str, Any]] = []
    shelf = Shelf()
    for index, run in enumerate(runs):
        for file in run.files:
            is_training = file.label == "train" or file.label.startswith("train.rank")
            logprobs = LogprobFile.beside(file.path) if is_training else None
            played = file.groups(math.ceil(share * file.path.stat().st_size))
            before = len(shelf.lifecycles)
            for group in played:
                try:
                    shelf.add(len(files), group, logprobs)
                except (TypeError, ValueError, OverflowError, AttributeError, LookupError):
                    # It is well-formed, with texts for numbers and the like.
                    file.left_out["values of the wrong kind"] += len(group.group.lifecycles)
            own = shelf.lifecycles[before:]
            files.append({"run": index} | file_facts(file, logprobs, own, shelf.strings))
    keys = dict.fromkeys(chain.from_iterable(run.config for run in runs))
    settings = [[key, [run.config.get(key, "") for run in runs]] for key in keys]
    of_run = [[file for file in files if file["run"] == index] for index in range(len(runs))]
    return {
        "version": __version__,
        "runs": [
            {"name": run.name, "folder": str(run.folder.resolve()), "notes": [*run.notes, *notes_of(own)]}
            for run, own in zip(runs, of_run, strict=True)
        ],
        "suites": suites_of(runs),
        "panels": panels_of(runs),
        "config": [row for row in settings if len(set(row[1])) > 1],
        "files": files,
    }, shelf.as_data()


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


def file_facts(
    file: LifecycleFile, logprobs: LogprobFile | None, lives: Sequence[Record], strings: Sequence[str]
) -> Record:
    """For the page, and for `notes_of`."""
    episodes = [one for life in lives for one in life["episodes"]]
    sampled = [turn for one in episodes for turn in one["turns"] if turn["logprobs"]]
    words = sum(
        len(strings[int(turn["response"])].split()) == len(turn["logprobs"]) - (turn["stop"] is StopReason.STOP)
        for turn in sampled
    )
    beside = {} if logprobs is None else {logprobs.path.name: dict(logprobs.left_out)}
    known = {name: any(one[name] is not None for one in episodes) for name in ("advantage", "gap")}
    known = {"logprob": any(any(turn["logprobs"]) for turn in sampled)} | known  # an endpoint's are all 0
    return {
        "label": visible(file.label),
        "lifecycles": len(lives) + file.num_unread,
        "shown": len(lives),
        "left_out": {file.path.name: dict(file.left_out)} | beside,
        "words": bool(sampled) and words >= _WORDED * len(sampled),
        "trained": "" if logprobs is None else _trained(logprobs, episodes),
        "colourings": [name for name, is_known in known.items() if is_known],  # since some token has it
    }


def _trained(logprobs: LogprobFile, episodes: Sequence[Record]) -> str:
    """How many episodes updates trained on."""
    if not logprobs.path.exists():
        return f"No advantages and log-prob gaps: there is no lifecycles/{logprobs.path.name}."
    sampled = [one for one in episodes if any(turn["logprobs"] for turn in one["turns"])]
    num_known = sum(one["gap"] is not None for one in sampled)
    return (
        f"Updates trained on {num_known:,} of the {len(sampled):,} episodes that were read, and these have advantages and log-prob "
        "gaps. The others had advantage 0, or none (a reward is missing, their kind is not trained), or no update has come to them."
    )


def notes_of(files: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What is missing of a run's files, in sentences."""
    for file in files:
        for name, reasons in file["left_out"].items():
            for reason, count in reasons.items():
                yield f"lifecycles/{name}: {count:,} {'line was' if count == 1 else 'lines were'} left out, {reason}."
        if file["trained"].startswith("No advantages"):
            yield file["trained"]
    shown, every = (sum(file[key] for file in files) for key in ("shown", "lifecycles"))
    if shown < every:
        yield f"{shown:,} of {every:,} lifecycles are in this report, whole groups taken evenly, to keep its size small."
