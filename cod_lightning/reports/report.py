"""The data of a report: every run's numbers, and the lifecycles of all runs, as many as a page can carry."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from cod_lightning import __version__
from cod_lightning.reports.file_facts import file_facts, is_training, notes_of
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
