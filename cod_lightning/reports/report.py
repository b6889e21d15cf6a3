"""The data of a report: every run's numbers, and the lifecycles of all runs, as many as a page can carry."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from cod_lightning import __version__
from cod_lightning.reports.gaps import LogprobFile
from cod_lightning.reports.lines import LifecycleFile, PlayedGroup
from cod_lightning.reports.records import Shelf, ShortGroup, short_group
from cod_lightning.reports.run import RunFolder, read_run, run_names

MOST_READ = 48_000_000
"""Bytes of lifecycles that are read of all runs together; of more, whole groups are left out evenly, with a note in the report."""


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
            logprobs = LogprobFile.beside(file.path) if is_training(file) else None
            played = file.spread(math.ceil(share * file.path.stat().st_size))
            own = list(_short_groups(file, played, len(files), logprobs))
            files.append({"run": index} | file_facts(file, logprobs, own))
            for group in own:
                shelf.add(group)
    keys = dict.fromkeys(chain.from_iterable(run.config for run in runs))
    settings = [[key, [run.config.get(key, "") for run in runs]] for key in keys]
    titles = dict.fromkeys(chain.from_iterable(run.panels for run in runs))
    overview = {
        "version": __version__,
        "runs": [
            {
                "name": run.name,
                "folder": str(run.folder.resolve()),
                "notes": [*run.notes, *notes_of([file for file in files if file["run"] == index])],
                "suites": run.suites,
            }
            for index, run in enumerate(runs)
        ],
        "panels": [
            {
                "title": title,
                "series": [
                    {"run": index, "label": one.label, "x": one.x, "y": one.y}
                    for index, run in enumerate(runs)
                    for one in run.panels.get(title, [])
                ],
            }
            for title in titles
        ],
        "config": [row for row in settings if len(set(row[1])) > 1],
        "files": files,
    }
    return overview, shelf.as_data()


def _short_groups(
    file: LifecycleFile,
    groups: Iterator[PlayedGroup],
    number: int,
    logprobs: LogprobFile | None,
) -> Iterator[ShortGroup]:
    for played in groups:
        try:
            yield short_group(number, played, None if logprobs is None else logprobs.of(played))
        except (TypeError, ValueError, OverflowError, AttributeError, LookupError):
            # It is well-formed, with texts for numbers and the like.
            file.left_out["values of the wrong kind"] += len(played.group.lifecycles)


_WORDED = 0.95
"""Words are shown as tokens where this share of a file's turns has as many of both (a few may be cut off in a word)."""


def file_facts(file: LifecycleFile, logprobs: LogprobFile | None, groups: Sequence[ShortGroup]) -> dict[str, Any]:
    """For the page, and for `notes_of`."""
    shown = sum(len(group.lives) for group in groups)
    num_sampled = sum(group.num_sampled for group in groups)
    beside = {} if logprobs is None else {logprobs.path.name: dict(logprobs.left_out)}
    return {
        "label": file.label,
        "lifecycles": shown + file.num_unread,
        "shown": shown,
        "left_out": {file.path.name: dict(file.left_out)} | beside,
        "words": num_sampled > 0 and sum(group.num_worded for group in groups) >= _WORDED * num_sampled,
        "trained": "" if logprobs is None else _trained(logprobs, groups),
        "colourings": list(_colourings(groups)),
    }


def _colourings(groups: Sequence[ShortGroup]) -> Iterator[str]:
    """What words can be coloured by, since some token has it."""
    episodes = [one for group in groups for life in group.lives for one in life["episodes"]]
    if any(group.num_sampled for group in groups):
        yield "logprob"
    for colouring in ("advantage", "gap"):
        if any(one[colouring] is not None for one in episodes):
            yield colouring


def _trained(logprobs: LogprobFile, groups: Sequence[ShortGroup]) -> str:
    """How many episodes updates trained on."""
    if not logprobs.path.exists():
        return f"No advantages and log-prob gaps: there is no lifecycles/{logprobs.path.name}."
    episodes = [one for group in groups for life in group.lives for one in life["episodes"]]
    sampled = [one for one in episodes if any(turn["logprobs"] for turn in one["turns"])]
    num_known = sum(one["gap"] is not None for one in sampled)
    return (
        f"Updates trained on {num_known:,} of the {len(sampled):,} episodes that were read, and these have advantages and log-prob "
        "gaps. The others had advantage 0, or no update has come to them."
    )


def is_training(file: LifecycleFile) -> bool:
    """Whether its lifecycles were trained on."""
    return file.label == "train" or file.label.startswith("train.rank")


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
