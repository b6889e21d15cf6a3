"""The suites of `evaluation.json` for readers; a damaged file is a note."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from cod_lightning.evaluation.schema import Results, SuiteRecord
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


def read_evaluation(folder: Path) -> SuitesOfRun:
    """The suites in a run's folder."""
    path = folder / "evaluation.json"
    if not path.is_file():
        return SuitesOfRun({}, {}, ["There is no evaluation.json, so success by position is missing."])
    try:
        content = msgspec.json.decode(path.read_bytes(), type=Results)
        suites = _played(content["suites"])
        checkpoints = {at: _played(of) for at, of in content.get("checkpoints", {}).items()}
    except (OSError, ValueError, LookupError, RecursionError) as error:
        return SuitesOfRun({}, {}, [f"evaluation.json cannot be read ({type(error).__name__}: {error})."])
    return SuitesOfRun(suites, checkpoints, [])


def _played(records: Mapping[str, SuiteRecord]) -> dict[str, PlayedSuite]:
    return {
        name: PlayedSuite(record, _title(record), rows(record), [*sentences(record), CAVEAT])
        for name, record in records.items()
    }


def _title(record: SuiteRecord) -> str:
    by = f", by {_tail(tested)}" if (tested := record.get("checkpoint")) else ""
    return f"{packs_of(record)} of {record['pack_size']} from {record['env']}{by}"


def run_names(folders: Sequence[Path]) -> list[str]:
    """The folders' own names; their paths from the folder that holds all where two are alike.

    >>> run_names([Path("/a/runs/smoke"), Path("/b/runs/smoke")]), run_names([Path("runs/smoke")])
    (['a/runs/smoke', 'b/runs/smoke'], ['smoke'])
    """
    paths = [folder.resolve() for folder in folders]
    names = [path.name for path in paths]
    return (
        names if len(set(names)) == len(names) else [os.path.relpath(path, os.path.commonpath(paths)) for path in paths]
    )


def _tail(checkpoint: str) -> str:
    """The end of its path: its run's folder and its name."""
    return "/".join(Path(checkpoint).parts[-3:])
