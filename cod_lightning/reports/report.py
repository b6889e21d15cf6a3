"""The data of a report: every run's numbers, and the lifecycles of all runs, as many as a page can carry."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from cod_lightning import __version__
from cod_lightning.markdown import visible
from cod_lightning.reports.gaps import LogprobFile
from cod_lightning.reports.lines import LifecycleFile
from cod_lightning.reports.overview import panels_of, suites_of
from cod_lightning.reports.records import Record, Shelf
from cod_lightning.reports.run import RunFolder, read_run
from cod_lightning.reports.suites import run_names
from cod_lightning.types import StopReason

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
    notes = [
        [*run.notes, *notes_of([file for file in files if file["run"] == index])] for index, run in enumerate(runs)
    ]
    return {
        "version": __version__,
        "runs": [
            {"name": run.name, "folder": str(run.folder.resolve()), "notes": of}
            for run, of in zip(runs, notes, strict=True)
        ],
        "suites": suites_of(runs),
        "panels": panels_of(runs),
        "config": [row for row in settings if len(set(row[1])) > 1],
        "files": files,
    }, shelf.as_data()


_WORDED = 0.95
"""Words are shown as tokens where this share of a file's turns has as many of both (a few may be cut off in a word)."""


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
