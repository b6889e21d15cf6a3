"""The data of a report: every run's numbers, and the lifecycles of all runs, as many as a page can carry."""

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from cod_lightning import __version__
from cod_lightning.reports.advantages import Credit
from cod_lightning.reports.file_facts import file_facts, is_training, notes_of
from cod_lightning.reports.gaps import LogprobFile
from cod_lightning.reports.lines import LifecycleFile, PlayedGroup
from cod_lightning.reports.page import embedded, in_rows
from cod_lightning.reports.records import Shelf, ShortGroup, short_group
from cod_lightning.reports.run import RunFolder, read_run, run_names

MOST_BYTES = 18_000_000
"""Of lifecycles in the page, before compression; if they are more, whole groups are left out evenly, with a note in the report."""
MOST_READ = 96_000_000
"""Bytes of lifecycles that are read of all runs together; of more, whole groups are left out evenly in every file."""
_REPEATED = 5
"""Lifecycles whose texts are longer than so many times that are thinned before repeated texts are counted once."""


def read_runs(folders: Sequence[Path]) -> list[RunFolder]:
    """The runs in these folders."""
    return [read_run(folder, name) for folder, name in zip(folders, run_names(list(folders)), strict=True)]


def report_data(
    runs: Sequence[RunFolder], most_bytes: int = MOST_BYTES, most_read: int = MOST_READ
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what the page draws at once, the lifecycles to browse); `config` has the settings in which the runs differ."""
    share = most_read / max(1, sum(file.path.stat().st_size for run in runs for file in run.files))
    files: list[dict[str, Any]] = []
    groups: list[ShortGroup] = []
    for index, run in enumerate(runs):
        for file in run.files:
            logprobs = LogprobFile.beside(file.path) if is_training(file) else None
            played = file.spread(math.ceil(share * file.path.stat().st_size))
            own = list(_short_groups(file, played, len(files), run.credit, logprobs))
            files.append({"run": index} | file_facts(file, run.credit, logprobs, own))
            groups += own
    lives, kept = _fitting(groups, most_bytes)
    for number, file in enumerate(files):
        file["shown"] = sum(len(group.lives) for group in kept if group.file == number)
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
    return overview, lives


def _short_groups(
    file: LifecycleFile,
    groups: Iterator[PlayedGroup],
    number: int,
    credit: Credit | str,
    logprobs: LogprobFile | None,
) -> Iterator[ShortGroup]:
    for played in groups:
        try:
            credited = credit.of(played.group) if isinstance(credit, Credit) and is_training(file) else None
            yield short_group(number, played, credited, None if logprobs is None else logprobs.of(played))
        except (TypeError, ValueError, OverflowError, AttributeError, LookupError):
            # It is well-formed, with texts for numbers and the like.
            file.left_out["values of the wrong kind"] += len(played.group.lifecycles)


def _fitting(groups: list[ShortGroup], most_bytes: int) -> tuple[dict[str, Any], list[ShortGroup]]:
    """As many groups as fit, taken evenly from every file, and these."""
    size = sum(group.size for group in groups)
    if size > _REPEATED * most_bytes:  # not even worth a try
        groups = _thinned(groups, _REPEATED * most_bytes / size)
    while True:
        shelf = Shelf()
        for group in groups:
            shelf.add(group)
        data = shelf.as_data()
        size = len(embedded(in_rows(data)).encode())
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
