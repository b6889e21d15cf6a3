"""Jobs of a sweep: each a `fit` in a process of its own, so that memory is clean and its peak is the run's own.

A Hydra launcher runs them: one after another, several at a time on this machine, or on a cluster. Hydra's multirun goes over
their numbers, since their configs are composed already. Launchers import this file in their own workers, on other machines too, so
nothing heavy is imported here.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cod_lightning.commands import LEARNT_NOTHING
from cod_lightning.errors import ConfigError
from cod_lightning.files import without_link
from cod_lightning.reports.sweeps.record import JobRecord, JobStatus, read_record, write_record

if TYPE_CHECKING:
    from omegaconf import DictConfig

_LAST = ("evaluation.json", "evaluation_packs.parquet", "report.html")
"""What a job writes at its end."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
LAUNCHERS = {"basic": "basic", "joblib": "joblib", "submitit": "submitit_slurm", "submitit_local": "submitit_local"}
"""As typed -> as Hydra calls it."""


def check_launcher(launcher: str) -> None:
    """Raise `ConfigError` for one that is not known, or not installed."""
    if launcher not in LAUNCHERS:
        raise ConfigError("--launcher", launcher, f"one of {', '.join(LAUNCHERS)}", "basic is the default.")
    name = f"hydra_{launcher.partition('_')[0]}_launcher"
    if launcher != "basic" and (find_spec("hydra_plugins") is None or find_spec(f"hydra_plugins.{name}") is None):
        remedy = f"Do pip install '{name.replace('_', '-')}>=1.2'."
        raise ConfigError("--launcher", launcher, "one that is installed", remedy)


def launch(folders: Sequence[Path], root: Path, launcher: str, num_at_once: int, hydra: Sequence[str]) -> None:
    """Run the jobs in these folders to their ends; `hydra` are further overrides of Hydra's own keys."""
    import hydra as hydra_package
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    GlobalHydra.instance().clear()
    sweep = {"dir": str(root / ".hydra"), "subdir": "${hydra.job.num}"}
    own = {"sweep": sweep, "job": {"chdir": False}, "output_subdir": None}
    node = {"folders": [str(folder) for folder in folders], "job": "???", "hydra": own}
    ConfigStore.instance().store(name="cod_lightning_sweep", node=node)
    numbers = ",".join(map(str, range(len(folders))))
    line = ["--multirun", f"hydra/launcher={LAUNCHERS[launcher]}"]
    line += ["hydra/hydra_logging=none", "hydra/job_logging=none"]
    line += [f"hydra.launcher.n_jobs={num_at_once}"] if launcher == "joblib" else []
    task = hydra_package.main(version_base="1.3", config_path=None, config_name="cod_lightning_sweep")(run_numbered)
    argv, sys.argv = sys.argv, ["sweep", *line, f"job={numbers}", *hydra]  # which `hydra.main` reads
    os.environ["HYDRA_FULL_ERROR"] = "1"  # lets errors through
    try:
        task()
    except (HydraException, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split())
        typed = " ".join([launcher, *hydra])
        raise ConfigError("--launcher", typed, "one that Hydra can start", f"Hydra's error: {reason}") from error
    finally:
        sys.argv = argv


def run_numbered(config: "DictConfig") -> str:
    """What a launcher calls, in its own process; how the job went is in its folder."""
    number = int(config.job)
    folders: Any = config.folders
    record = run_job(Path(folders[number]), place=f"[{number + 1}/{len(folders)}] ")
    return str(record.status)


def run_job(folder: Path, place: str = "") -> JobRecord:
    """Run it to its end, write down how it went, print one line; a failure is data and raises nothing."""
    record = read_record(folder)
    interrupted = record.status in (JobStatus.RUNNING, JobStatus.INTERRUPTED)
    last = folder / "checkpoints" / "last.ckpt"
    resumes = interrupted and last.is_file()
    if last.is_file() and not resumes:
        last.unlink()  # a failed attempt's: killed before its first checkpoint this one would go on from it
    record = replace(record, status=JobStatus.RUNNING, error=None, num_attempts=record.num_attempts + 1)
    if not resumes:
        record = replace(record, wall_s=0.0, cpu_s=0.0, peak_mib=0.0)
    print(f"{place}{record.label}: {'goes on from its last checkpoint' if resumes else 'begins'}", flush=True)
    record = _run(folder, record, command(folder, resumes=resumes))
    write_record(folder, record)
    cost = f"{record.wall_s:.0f} s ({record.cpu_s:.0f} s of CPU), peak {record.peak_mib:.0f} MiB"
    ended = f"finished in {cost}" if record.error is None else f"{record.status.upper()} after {cost}: {record.error}"
    print(f"{place}{record.label}: {ended}", flush=True)
    return record


def command(folder: Path, *, resumes: bool = False) -> list[str]:
    """What the job's process runs."""
    line = [sys.executable, "-m", "cod_lightning", "fit", "--config", str(folder / "job.yaml")]
    line += ["--trainer.default_root_dir", str(folder)]
    return [*line, "--ckpt_path", "last"] if resumes else [*line, "--overwrite", "true"]


def _run(folder: Path, record: JobRecord, line: list[str]) -> JobRecord:
    """The record after the process has ended."""
    environment = os.environ | {name: str(record.threads) for name in _THREADS} | {"PYTHONUNBUFFERED": "1"}
    for name in _LAST:
        (folder / name).unlink(missing_ok=True)
    write_record(folder, record)
    begun = time.perf_counter()
    with without_link(folder / "log.txt").open("a" if record.num_attempts > 1 else "w") as log:
        child = subprocess.Popen(line, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            _, ended, usage = os.wait4(child.pid, 0)
        except BaseException:
            child.send_signal(signal.SIGTERM)
            child.wait()
            raise
    child.returncode = code = os.waitstatus_to_exitcode(ended)
    peak = usage.ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)
    status, error = _outcome(folder, code)
    return replace(
        record,
        status=status,
        error=error,
        wall_s=round(record.wall_s + time.perf_counter() - begun, 2),
        cpu_s=round(record.cpu_s + usage.ru_utime + usage.ru_stime, 2),
        peak_mib=round(max(record.peak_mib, peak), 1),
    )


def _outcome(folder: Path, code: int) -> tuple[JobStatus, str | None]:
    """Status and error: the last line of the log that names one, else its last line.

    Lightning ends with 0 after a SIGTERM, so what a job writes last has to be there as well.
    """
    if code < 0:
        remedy = " (out of memory?)" if -code == signal.SIGKILL else ""
        return JobStatus.INTERRUPTED, f"killed by {signal.Signals(-code).name}{remedy}"
    if code not in (0, LEARNT_NOTHING):  # what a training without a signal comes to is a result
        lines = [line.strip() for line in (folder / "log.txt").read_text(errors="replace").splitlines() if line.strip()]
        telling = [one for one in lines[-20:] if any(word in one.lower() for word in ("error", "exception", "killed"))]
        return JobStatus.FAILED, (telling or lines or ["it wrote no output"])[-1].removeprefix("error: ")
    if all((folder / name).is_file() for name in ("evaluation.json", "report.html")):
        return JobStatus.FINISHED, None
    return JobStatus.INTERRUPTED, "it ended before its evaluation did (stopped by a signal?)"
