"""Facts about a file of lifecycles: how many it holds, what was left out, and what its tokens can be coloured by."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cod_lightning.reports.advantages import Credit
from cod_lightning.reports.gaps import LogprobFile
from cod_lightning.reports.lines import LifecycleFile
from cod_lightning.reports.records import ShortGroup

_WORDED = 0.95
"""Words are shown as tokens where this share of a file's turns has as many of both (a few may be cut off in a word)."""
_NO_ADVANTAGE = 1e-6
"""Below this an update takes an advantage for 0, and so does the report."""


def file_facts(
    file: LifecycleFile, credit: Credit | str, logprobs: LogprobFile | None, groups: Sequence[ShortGroup]
) -> dict[str, Any]:
    """For the page, and for `notes_of`; `shown`, how many lifecycles fit, is added when that is known."""
    num_sampled = sum(group.num_sampled for group in groups)
    beside = {} if logprobs is None else {logprobs.path.name: dict(logprobs.left_out)}
    return {
        "label": file.label,
        "lifecycles": sum(len(group.lives) for group in groups) + file.num_unread,
        "left_out": {file.path.name: dict(file.left_out)} | beside,
        "words": num_sampled > 0 and sum(group.num_worded for group in groups) >= _WORDED * num_sampled,
        "advantages": _remark(file, credit, groups),
        "gaps": "" if logprobs is None else _gap_remark(logprobs, groups),
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


def _gap_remark(logprobs: LogprobFile, groups: Sequence[ShortGroup]) -> str:
    """How many episodes have gaps, and why the others have none."""
    if not logprobs.path.exists():
        return f"No log-prob gaps: there is no lifecycles/{logprobs.path.name}."
    sampled = [
        one
        for group in groups
        for life in group.lives
        for one in life["episodes"]
        if any(turn["logprobs"] for turn in one["turns"])
    ]
    without = [one for one in sampled if one["gap"] is None]
    unmoved = sum(one["advantage"] is not None and abs(one["advantage"]) < _NO_ADVANTAGE for one in without)
    known = (
        f"Log-prob gaps are known for {len(sampled) - len(without):,} of the {len(sampled):,} episodes that were read."
    )
    dropped = f" {unmoved:,} had advantage 0, so that no update put their tokens through the model." if unmoved else ""
    lost = (
        f" For {len(without) - unmoved:,} there is no line in {logprobs.path.name}." if len(without) > unmoved else ""
    )
    return known + dropped + lost


def _remark(file: LifecycleFile, credit: Credit | str, groups: Sequence[ShortGroup]) -> str:
    """What the advantages in this file are, or why there are none."""
    if not is_training(file):
        return "No advantages: they compare siblings of training groups, and these lifecycles were not trained on."
    if isinstance(credit, str):
        return credit
    incomplete = sum(len(group.lives) < credit.group_size for group in groups)
    missing = f" {incomplete:,} of {len(groups):,} groups lack siblings and have none." if incomplete else ""
    return credit.remark + missing


def is_training(file: LifecycleFile) -> bool:
    """Whether its lifecycles were trained on."""
    return file.label == "train" or file.label.startswith("train.rank")


def notes_of(files: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What is missing of a run's files, in sentences."""
    for file in files:
        for name, reasons in file["left_out"].items():
            for reason, count in reasons.items():
                yield f"lifecycles/{name}: {count:,} {'line was' if count == 1 else 'lines were'} left out, {reason}."
        if file["gaps"].startswith("No log-prob gaps"):
            yield file["gaps"]
    shown, every = (sum(file[key] for file in files) for key in ("shown", "lifecycles"))
    if shown < every:
        yield f"{shown:,} of {every:,} lifecycles are in this report, whole groups taken evenly, to keep its size small."
