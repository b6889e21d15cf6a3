"""Facts about a file of lifecycles: how many it holds, what was left out, and what its tokens can be coloured by."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cod_lightning.reports.gaps import LogprobFile
from cod_lightning.reports.lines import LifecycleFile
from cod_lightning.reports.records import ShortGroup

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
