"""One job of a sweep: a command in a process of its own, so that memory is clean and its peak is the run's own.

Launchers run it in workers of theirs, on other machines too, so nothing heavy is imported here.
"""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from cod_lightning.reports.sweeps.record import JobKind, JobRecord, JobStatus, read_record, write_record

_TELLING = re.compile(r"error|exception|killed", re.IGNORECASE)
_LAST = ("evaluation.json", "evaluation_packs.parquet", "report.html")
"""What a job writes at its end."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def run_job(folder: Path, place: str = "") -> JobRecord:
    """Run it to its end, write down how it went, print one line; a failure is data and raises nothing."""
    record = read_record(folder)
    resumes = _was_interrupted(record) and (folder / "checkpoints" / "last.ckpt").is_file()
    record = replace(record, status=JobStatus.RUNNING, error=None, num_attempts=record.num_attempts + 1)
    if not resumes:
        record = replace(record, wall_s=0.0, cpu_s=0.0, peak_mib=0.0)
    print(f"{place}{record.label}: {'goes on from its last checkpoint' if resumes else 'begins'}", flush=True)
    record = _run(folder, record, command(folder, record.kind, resumes=resumes))
    write_record(folder, record)
    print(f"{place}{record.label}: {_told(record)}", flush=True)
    return record


def command(folder: Path, kind: JobKind, *, resumes: bool = False) -> list[str]:
    """What the job's process runs."""
    what = "fit" if kind is JobKind.FIT else "test"
    line = [sys.executable, "-m", "cod_lightning", what, "--config", str(folder / "job.yaml")]
    line += ["--trainer.default_root_dir", str(folder)]
    if what == "fit":
        line += ["--ckpt_path", "last"] if resumes else ["--overwrite", "true"]
    return line


def still_runs(folder: Path, record: JobRecord) -> bool:
    """Whether a process of this machine is at it; seen where there is /proc."""
    try:
        told = Path(f"/proc/{record.pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return record.status is JobStatus.RUNNING and str(folder) in told


def _was_interrupted(record: JobRecord) -> bool:
    return record.status in (JobStatus.RUNNING, JobStatus.INTERRUPTED)


def _run(folder: Path, record: JobRecord, line: list[str]) -> JobRecord:
    """The record after the process has ended."""
    environment = os.environ | {name: str(record.threads) for name in _THREADS} | {"PYTHONUNBUFFERED": "1"}
    for name in _LAST:
        (folder / name).unlink(missing_ok=True)
    begun = time.perf_counter()
    with (folder / "log.txt").open("a" if record.num_attempts > 1 else "w") as log:
        child = subprocess.Popen(line, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            write_record(folder, replace(record, pid=child.pid))
            _, ended, usage = os.wait4(child.pid, 0)
        except BaseException:
            child.send_signal(signal.SIGTERM)
            child.wait()
            raise
    child.returncode = code = os.waitstatus_to_exitcode(ended)
    peak = usage.ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    status, error = _outcome(folder, record.kind, code)
    return replace(
        record,
        status=status,
        error=error,
        wall_s=round(record.wall_s + time.perf_counter() - begun, 2),
        cpu_s=round(record.cpu_s + usage.ru_utime + usage.ru_stime, 2),
        peak_mib=round(max(record.peak_mib, peak), 1),
    )


def _outcome(folder: Path, kind: JobKind, code: int) -> tuple[JobStatus, str | None]:
    """Status and error. Lightning ends with 0 after a SIGTERM, so what a job writes last has to be there as well."""
    if code < 0:
        remedy = " (out of memory?)" if -code == signal.SIGKILL else ""
        return JobStatus.INTERRUPTED, f"killed by {signal.Signals(-code).name}{remedy}"
    if code > 0:
        return JobStatus.FAILED, _error(folder / "log.txt")
    evaluation = folder / "evaluation.json"
    told = evaluation.read_text(encoding="utf-8") if evaluation.is_file() else ""
    if told and ((folder / "report.html").is_file() if kind is JobKind.FIT else '"warm_start' in told):
        return JobStatus.FINISHED, None
    return JobStatus.INTERRUPTED, "it ended before its evaluation did (told to stop by a signal?)"


def _error(log: Path) -> str:
    """The last line of its log that tells of an error, else its last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines[-20:] if _TELLING.search(line)]
    return (telling or lines or ["it wrote nothing"])[-1].removeprefix("error: ")


def _told(record: JobRecord) -> str:
    cost = f"{record.wall_s:.0f} s ({record.cpu_s:.0f} s of CPU), peak {record.peak_mib:.0f} MiB"
    if record.status is JobStatus.FINISHED:
        return f"finished in {cost}"
    return f"{record.status.upper()} after {cost}: {record.error}"
