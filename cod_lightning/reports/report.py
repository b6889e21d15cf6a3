"""The data of a report: every run's numbers, and the lifecycles of all runs, as many as a page can carry."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from cod_lightning import __version__
from cod_lightning.reports.advantages import Credit
from cod_lightning.reports.embedded import embedded
from cod_lightning.reports.gaps import LogprobFile
from cod_lightning.reports.lines import LifecycleFile
from cod_lightning.reports.records import Shelf, ShortGroup, short_group
from cod_lightning.reports.run import Run, read_run, run_names

MOST_BYTES = 18_000_000
"""Of lifecycles in the page; if they are more, whole groups are left out evenly and the report says so."""
NO_ADVANTAGE = 1e-6
"""Below this an update takes an advantage for 0, and so does the report."""
_REPEATED = 5
"""Lifecycles whose texts are longer than so many times that are thinned before repeated texts are counted once."""
_WORDED = 0.95
"""Words are shown as tokens where this share of a file's turns has as many of both (a few may be cut off in a word)."""


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs in these folders."""
    return [read_run(folder, name) for folder, name in zip(folders, run_names(list(folders)), strict=True)]


def report_data(runs: Sequence[Run], most_bytes: int = MOST_BYTES) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what the page draws at once, the lifecycles to browse)."""
    files: list[dict[str, Any]] = []
    groups: list[ShortGroup] = []
    for index, run in enumerate(runs):
        for file in run.files:
            logprobs = LogprobFile.beside(file.path) if _is_training(file) else None
            own = list(_short_groups(file, len(files), run.credit, logprobs))
            files.append({"run": index} | _file(file, run.credit, logprobs, own))
            groups += own
    lives, kept = _fitting(groups, most_bytes)
    for number, file in enumerate(files):
        file["shown"] = sum(len(group.lives) for group in kept if group.file == number)
    overview = {
        "version": __version__,
        "runs": [_run(run, index, files) for index, run in enumerate(runs)],
        "panels": _panels(runs),
        "config": _differences(runs),
        "files": files,
    }
    return overview, lives


def _short_groups(
    file: LifecycleFile, number: int, credit: Credit | str, logprobs: LogprobFile | None
) -> Iterator[ShortGroup]:
    for played in file.groups():
        try:
            credited = credit.of(played.group) if isinstance(credit, Credit) and _is_training(file) else None
            yield short_group(number, played, credited, None if logprobs is None else logprobs.of(played))
        except (TypeError, ValueError, OverflowError):  # well-formed, with texts for numbers and the like
            file.left_out["values of the wrong kind"] += len(played.group.lifecycles)


def _file(
    file: LifecycleFile, credit: Credit | str, logprobs: LogprobFile | None, groups: Sequence[ShortGroup]
) -> dict[str, Any]:
    num_sampled = sum(group.num_sampled for group in groups)
    return {
        "label": file.label,
        "lifecycles": sum(len(group.lives) for group in groups),
        "left_out": {file.path.name: dict(file.left_out)} | _side(logprobs),
        "words": num_sampled > 0 and sum(group.num_worded for group in groups) >= _WORDED * num_sampled,
        "advantages": _remark(file, credit, groups),
        "gaps": "" if logprobs is None else _gap_remark(logprobs, groups),
        "colourings": list(_colourings(groups)),
    }


def _colourings(groups: Sequence[ShortGroup]) -> Iterator[str]:
    """What words can be coloured by, since some token has it."""
    episodes = [one for group in groups for life in group.lives for one in life["e"]]
    if any(group.num_sampled for group in groups):
        yield "logprob"
    for colouring, key in (("advantage", "A"), ("gap", "G")):
        if any(one[key] is not None for one in episodes):
            yield colouring


def _side(logprobs: LogprobFile | None) -> dict[str, dict[str, int]]:
    return {} if logprobs is None else {logprobs.path.name: dict(logprobs.left_out)}


def _gap_remark(logprobs: LogprobFile, groups: Sequence[ShortGroup]) -> str:
    """How many episodes have gaps, and why the others have none."""
    if not logprobs.path.exists():
        return f"No log-prob gaps: there is no lifecycles/{logprobs.path.name}."
    said = [one for group in groups for life in group.lives for one in life["e"] if any(turn[4] for turn in one["t"])]
    without = [one for one in said if one["G"] is None]
    silent = sum(one["A"] is not None and abs(one["A"]) < NO_ADVANTAGE for one in without)
    known = f"Log-prob gaps are known for {len(said) - len(without):,} of the {len(said):,} episodes of this file."
    dropped = f" {silent:,} had advantage 0, so that no update put their tokens through the model." if silent else ""
    lost = f" For {len(without) - silent:,} there is no line in {logprobs.path.name}." if len(without) > silent else ""
    return known + dropped + lost


def _remark(file: LifecycleFile, credit: Credit | str, groups: Sequence[ShortGroup]) -> str:
    """What the advantages in this file are, or why there are none."""
    if not _is_training(file):
        return "No advantages: they compare siblings of training groups, and these lifecycles were not trained on."
    if isinstance(credit, str):
        return credit
    incomplete = sum(len(group.lives) < credit.group_size for group in groups)
    missing = f" {incomplete:,} of {len(groups):,} groups lack siblings and have none." if incomplete else ""
    return credit.remark + missing


def _is_training(file: LifecycleFile) -> bool:
    return file.label == "train" or file.label.startswith("train.rank")


def _fitting(groups: list[ShortGroup], most_bytes: int) -> tuple[dict[str, Any], list[ShortGroup]]:
    """As many groups as fit, taken evenly from every file, and these."""
    told = sum(group.size for group in groups)
    if told > _REPEATED * most_bytes:  # not even worth a try
        groups = _thinned(groups, _REPEATED * most_bytes / told)
    while True:
        shelf = Shelf()
        for group in groups:
            shelf.add(group)
        data = shelf.as_data()
        size = len(embedded(data).encode())
        fewer = _thinned(groups, 0.95 * most_bytes / size)
        if size <= most_bytes or len(fewer) == len(groups):
            return data, groups
        groups = fewer


def _thinned(groups: list[ShortGroup], share: float) -> list[ShortGroup]:
    """The first group of every file, and that share of the others, evenly."""
    kept, seen = [], dict.fromkeys((group.file for group in groups), 0)
    for group in groups:
        place = seen[group.file]
        seen[group.file] += 1
        if math.floor(place * share) != math.floor((place - 1) * share):
            kept.append(group)
    return kept


def _run(run: Run, index: int, files: Sequence[dict[str, Any]]) -> dict[str, Any]:
    own = [file for file in files if file["run"] == index]
    return {
        "name": run.name,
        "folder": str(run.folder.resolve()),
        "notes": [*run.notes, *chain.from_iterable(map(_counted, own))],
        "suites": run.suites,
    }


def _counted(file: dict[str, Any]) -> Iterator[str]:
    for name, reasons in file["left_out"].items():
        for reason, count in reasons.items():
            yield f"lifecycles/{name}: {count:,} {'line was' if count == 1 else 'lines were'} left out, {reason}."
    if file["gaps"].startswith("No log-prob gaps"):
        yield file["gaps"]
    if file["shown"] < file["lifecycles"]:
        shown = f"{file['shown']:,} of {file['lifecycles']:,} lifecycles are in this report"
        yield f"lifecycles/{file['label']}.jsonl: {shown}, whole groups taken evenly, to keep its size small."


def _panels(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The union of all runs' panels, the runs' lines in each."""
    titles = dict.fromkeys(chain.from_iterable(run.panels for run in runs))
    return [
        {
            "title": title,
            "series": [
                {"run": index, "label": one.label, "x": one.x, "y": one.y}
                for index, run in enumerate(runs)
                for one in run.panels.get(title, [])
            ],
        }
        for title in titles
    ]


def _differences(runs: Sequence[Run]) -> list[list[Any]]:
    """Settings in which the runs differ: key, and each run's value; empty for a single run."""
    keys = dict.fromkeys(chain.from_iterable(run.config for run in runs))
    rows = [[key, [run.config.get(key, "") for run in runs]] for key in keys]
    return [row for row in rows if len(set(row[1])) > 1]
