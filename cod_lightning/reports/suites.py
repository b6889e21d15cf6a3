"""The suites of `evaluation.json` for readers; whatever is damaged costs itself alone, and is a note."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict

import msgspec

from cod_lightning.evaluation.schema import SuiteRecord
from cod_lightning.evaluation.view import Row, packs_of, rows
from cod_lightning.evaluation.wording import CAVEAT, sentences

STALE = "By the files' times, evaluation.json is older than {}: its numbers are those of earlier weights."


@dataclass(frozen=True, slots=True)
class PlayedSuite:
    """One suite of one policy."""

    record: SuiteRecord
    title: str
    rows: list[Row]
    sentences: list[str]


@dataclass(frozen=True, slots=True)
class SuitesOfRun:
    """What can be read of a run's evaluation.json."""

    suites: dict[str, PlayedSuite]
    checkpoints: dict[str, dict[str, PlayedSuite]]
    """Of checkpoints that were tested several in a call (`test --ckpt_path [A,B]`): by checkpoint, then by suite."""
    notes: list[str]
    """What cannot be read."""

    @property
    def all_suites(self) -> dict[str, PlayedSuite]:
        """By name, those of checkpoints by name and checkpoint."""
        of_checkpoints = {
            f"{name}, {place}: {_tail(at)}": suite
            for place, (at, suites) in enumerate(self.checkpoints.items(), start=1)
            for name, suite in suites.items()
        }
        return self.suites | of_checkpoints


class _File(TypedDict):
    suites: dict[str, msgspec.Raw]
    checkpoints: NotRequired[dict[str, dict[str, msgspec.Raw]]]


def read_evaluation(folder: Path) -> SuitesOfRun:
    """The suites in a run's folder."""
    path = folder / "evaluation.json"
    if not path.is_file():
        return SuitesOfRun(
            {}, {}, ["There is no evaluation.json, so success by position on held-out packs is missing."]
        )
    try:
        content = msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, ValueError, RecursionError) as error:
        return SuitesOfRun({}, {}, [f"evaluation.json cannot be read ({type(error).__name__}: {error})."])
    notes: list[str] = []
    checkpoints = {at: _readable(suites, notes) for at, suites in content.get("checkpoints", {}).items()}
    return SuitesOfRun(_readable(content["suites"], notes), checkpoints, notes)


def _readable(suites: Mapping[str, msgspec.Raw], notes: list[str]) -> dict[str, PlayedSuite]:
    found: dict[str, PlayedSuite] = {}
    for name, raw in suites.items():
        try:
            found[name] = _suite(msgspec.json.decode(raw, type=SuiteRecord))
        except (ValueError, LookupError, RecursionError) as error:
            notes.append(f"Suite {name} of evaluation.json was left out ({type(error).__name__}: {error}).")
    return found


def _suite(record: SuiteRecord) -> PlayedSuite:
    title = f"{packs_of(record)} of {record['pack_size']} from {record['env']}"
    if tested := record.get("checkpoint"):
        title += f", by {_tail(tested)}"
    return PlayedSuite(record, title, rows(record), [*sentences(record), CAVEAT])


def run_names(folders: list[Path]) -> list[str]:
    """The folders' own names; more of the path where two are alike.

    >>> run_names([Path("/a/runs/smoke"), Path("/b/runs/smoke")]), run_names([Path("runs/smoke")])
    (['a/runs/smoke', 'b/runs/smoke'], ['smoke'])
    """
    parts = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{'/'.join(part[-1:])} ({index})" for index, part in enumerate(parts, start=1)]


def _tail(checkpoint: str) -> str:
    """The end of its path: its run's folder and its name."""
    return "/".join(Path(checkpoint).parts[-3:])
