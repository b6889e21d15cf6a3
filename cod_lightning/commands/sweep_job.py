"""Jobs of a sweep: each a `fit` in a process of its own, so that it begins with clean memory.

A Hydra launcher runs them: one after another, several at a time on this machine, or on a cluster. Hydra's multirun goes over
their numbers, since their configs are composed already. Launchers import this file in their own workers, on other machines too, so
no torch is imported here.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from cod_lightning.commands import LEARNT_NOTHING
from cod_lightning.errors import ConfigError, in_a_line
from cod_lightning.extras import require
from cod_lightning.files import without_link
from cod_lightning.reports.sweeps.record import read_record, write_record

_LAST = "report.html"
"""What a job writes at its end."""


def launch(folders: Sequence[Path], root: Path, launcher: str, more: Sequence[str]) -> None:
    """Run the jobs in these folders to their ends; `more` are further overrides of Hydra's own keys."""
    if (kind := launcher.partition("_")[0]) in ("joblib", "submitit"):
        require(f"hydra-{kind}-launcher", "--launcher", launcher)
    GlobalHydra.instance().clear()
    sweep = {"dir": str(root / ".hydra"), "subdir": "${hydra.job.num}"}
    own = {"sweep": sweep, "job": {"chdir": False}, "output_subdir": None}
    node = {"folders": [str(folder) for folder in folders], "job": "???", "hydra": own}
    ConfigStore.instance().store(name="cod_lightning_sweep", node=node)
    numbers = ",".join(map(str, range(len(folders))))
    line = ["--multirun", f"hydra/launcher={launcher}", "hydra/hydra_logging=none", "hydra/job_logging=none"]
    task = hydra.main(version_base="1.3", config_path=None, config_name="cod_lightning_sweep")(run_numbered)
    argv, sys.argv = sys.argv, ["sweep", *line, f"job={numbers}", *more]  # which `hydra.main` reads
    os.environ["HYDRA_FULL_ERROR"] = "1"  # lets errors through
    try:
        task()
    except (HydraException, OmegaConfBaseException) as error:
        typed = " ".join([launcher, *more])
        raise ConfigError("--launcher", typed, "one that Hydra can start", in_a_line(error)) from error
    finally:
        sys.argv = argv


def run_numbered(config: DictConfig) -> None:
    """What a launcher calls, in its own process; how the job went is in its folder."""
    number, folders = int(config.job), list[Any](config.folders)
    run_job(Path(folders[number]), place=f"[{number + 1}/{len(folders)}] ")


def run_job(folder: Path, place: str = "") -> None:
    """Run it, from its last checkpoint if it has one, and write down how it went; a failure is data and raises nothing."""
    record = read_record(folder)
    print(f"{place}{record.label}: begins; what it prints is in {folder / 'log.txt'}", flush=True)
    begun = time.perf_counter()
    (folder / _LAST).unlink(missing_ok=True)
    # of libraries beside torch, which has its threads from the config
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONUNBUFFERED": "1"}
    with without_link(folder / "log.txt").open("a") as log:
        child = subprocess.Popen(command(folder), env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            code = child.wait()
        except BaseException:
            child.send_signal(signal.SIGTERM)
            child.wait()
            raise
    error = _error(folder, code)
    write_record(folder, replace(record, finished=error is None, error=error))
    ended = "finished" if error is None else f"not finished: {error}"
    print(f"{place}{record.label}: {ended} ({time.perf_counter() - begun:.0f} s)", flush=True)


def command(folder: Path) -> list[str]:
    """What the job's process runs."""
    line = [sys.executable, "-m", "cod_lightning", "fit", "--config", str(folder / "job.yaml")]
    return [*line, "--trainer.default_root_dir", str(folder), "--ckpt_path", "auto"]


def _error(folder: Path, code: int) -> str | None:
    """The last line of the log that names one, else its last line; None for a job that is finished."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}{' (out of memory?)' if -code == signal.SIGKILL else ''}"
    if code in (0, LEARNT_NOTHING):  # what a training without a signal comes to is a result
        return None if (folder / _LAST).is_file() else "it ended before its evaluation did (stopped by a signal?)"
    lines = [line.strip() for line in (folder / "log.txt").read_text(errors="replace").splitlines() if line.strip()]
    telling = [one for one in lines[-20:] if any(word in one.lower() for word in ("error", "exception", "killed"))]
    return (telling or lines or ["it wrote no output"])[-1].removeprefix("error: ")
