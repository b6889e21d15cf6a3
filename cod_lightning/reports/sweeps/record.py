"""`job.json`: one job of a sweep, a cell trained with one seed, and whether it is finished. Light: each job reads it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from cod_lightning.errors import DataError
from cod_lightning.files import readable, write_whole

_FILE = "job.json"


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """One job; its folder is the run's folder."""

    label: str
    """What a person reads: what tells it from the jobs that were planned with it."""
    config: str
    """As it was typed behind --config."""
    overrides: tuple[str, ...]
    """As Hydra takes them, without the seed's."""
    cell: str
    """Hash of the resolved config without the seed."""
    seed: int
    order: int = 0
    """Place among the jobs that were planned with it; tables keep it."""
    finished: bool = False
    error: str | None = None
    """Why its last process ended early, in one line."""


def read_record(folder: Path) -> JobRecord:
    """The record in that folder. Raises `DataError` where there is none, or a damaged one."""
    path = folder / _FILE
    try:
        return msgspec.json.decode(readable(path).read_bytes(), type=JobRecord)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is no job of a sweep ({type(error).__name__}: {error}). Move it away.") from error


def write_record(folder: Path, record: JobRecord) -> None:
    """Put it there, in one replace."""
    write_whole(folder / _FILE, json.dumps(asdict(record), indent=1) + "\n")


def read_jobs(root: Path) -> dict[Path, JobRecord]:
    """All jobs of a sweep's folder, by their own folders."""
    return {path.parent: read_record(path.parent) for path in sorted(root.glob(f"*/{_FILE}"))}
