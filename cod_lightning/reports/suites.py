"""The suites of `evaluation.json` for readers; a damaged file is a note."""

import os
from collections.abc import Sequence
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


def read_evaluation(folder: Path) -> tuple[dict[str, PlayedSuite], list[str]]:
    """The suites in a run's folder, and notes for the reader."""
    path = folder / "evaluation.json"
    if not path.is_file():
        return {}, ["There is no evaluation.json, so success by position is missing."]
    try:
        content = msgspec.json.decode(path.read_bytes(), type=Results)
        suites = {
            name: PlayedSuite(record, _title(record), rows(record), [*sentences(record), CAVEAT])
            for name, record in content["suites"].items()
        }
    except (OSError, ValueError, LookupError, RecursionError) as error:
        return {}, [f"evaluation.json cannot be read ({type(error).__name__}: {error})."]
    return suites, []


def _title(record: SuiteRecord) -> str:
    # the end of a checkpoint's path: its run's folder and its name
    by = f", by {'/'.join(Path(tested).parts[-3:])}" if (tested := record.get("checkpoint")) else ""
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
