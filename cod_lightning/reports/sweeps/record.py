"""`job.json`: what a job of a sweep was asked to do, and how that went. Nothing heavy, since every job's process reads it."""

import json
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from cod_lightning.errors import DataError
from cod_lightning.files import write_whole

_FILE = "job.json"


class JobStatus(StrEnum):
    """How far it got."""

    PLANNED = "planned"
    RUNNING = "running"
    """Begun; where its process is gone, its sweep was killed, and it counts as interrupted."""
    INTERRUPTED = "interrupted"
    """Ended by a signal; goes on from its last checkpoint."""
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """One job: a cell trained and evaluated with one seed; its folder is the run's folder."""

    label: str
    """What a person reads: what tells it from the jobs that were planned with it."""
    config: str
    """As it was typed behind --config."""
    overrides: tuple[str, ...]
    """As Hydra takes them, the seed's among them."""
    setting: dict[str, str]
    """What tells its cell from others: the choice in every config group, and every value that was set; without the seed."""
    seed: int
    order: int = 0
    """Place among the jobs that were planned with it; tables keep it."""
    threads: int = 1
    """Of torch."""
    status: JobStatus = JobStatus.PLANNED
    error: str | None = None
    """In one line, where it failed or was interrupted."""
    wall_s: float = 0.0
    """From start to end of its process, over all attempts, evaluation included."""
    cpu_s: float = 0.0
    """User and system time of its process, over all attempts: a cost that other processes on the machine change little."""
    peak_mib: float = 0.0
    """Largest resident memory of its process."""
    num_attempts: int = 0


def read_record(folder: Path) -> JobRecord:
    """The record in that folder. Raises `DataError` where there is none, or a damaged one."""
    path = folder / _FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=JobRecord)
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is no job of a sweep ({type(error).__name__}: {error}). Move it away.") from error


def write_record(folder: Path, record: JobRecord) -> None:
    """Put it there, in one replace."""
    write_whole(folder / _FILE, json.dumps(asdict(record), indent=1) + "\n")


def read_jobs(root: Path) -> dict[Path, JobRecord]:
    """All jobs of a sweep's folder, by their own folders."""
    if pipe := next(filter(Path.is_fifo, root.glob("*/*")), None):
        raise DataError(f"{pipe} is a pipe, which would be waited for. Move it away.")
    return {path.parent: read_record(path.parent) for path in sorted(root.glob(f"*/{_FILE}"))}
