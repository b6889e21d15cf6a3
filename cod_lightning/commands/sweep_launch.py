"""Hands planned jobs to a Hydra launcher: one after another, several at a time on this machine, or to a cluster.

The jobs are composed already, so Hydra's multirun goes over their numbers alone; the axes are `sweep_plan.py`'s.
"""

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from cod_lightning.commands.sweep_job import run_job
from cod_lightning.errors import ConfigError

LAUNCHERS = {
    "basic": ("basic", "hydra"),
    "joblib": ("joblib", "hydra_plugins.hydra_joblib_launcher"),
    "submitit": ("submitit_slurm", "hydra_plugins.hydra_submitit_launcher"),
    "submitit_local": ("submitit_local", "hydra_plugins.hydra_submitit_launcher"),
}
"""As typed -> as Hydra calls it, and the package that brings it."""


def check_launcher(launcher: str) -> None:
    """Raise `ConfigError` where it is not installed."""
    package = LAUNCHERS[launcher][1]
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        found = None
    if found is None:
        remedy = "Install it: pip install 'cod-lightning[sweep]'."
        raise ConfigError("--launcher", launcher, f"one that is installed, as {package}", remedy)


def launch(folders: Sequence[Path], root: Path, launcher: str, num_at_once: int, hydra: Sequence[str]) -> None:
    """Run the jobs in these folders to their ends; `hydra` are further overrides of Hydra's own keys."""
    import hydra as hydra_package
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    GlobalHydra.instance().clear()
    ConfigStore.instance().store(name="cod_lightning_sweep", node=_config(folders, root))
    numbers = ",".join(map(str, range(len(folders))))
    line = [
        "--multirun",
        f"hydra/launcher={LAUNCHERS[launcher][0]}",
        "hydra/hydra_logging=none",
        "hydra/job_logging=none",
    ]
    line += [f"hydra.launcher.n_jobs={num_at_once}"] if launcher == "joblib" else []
    task = hydra_package.main(version_base="1.3", config_path=None, config_name="cod_lightning_sweep")(run_numbered)
    try:
        with _typed([*line, f"job={numbers}", *hydra]):
            task()
    except (HydraException, OmegaConfBaseException) as error:
        said = " ".join(str(error).split())
        raise ConfigError(
            "--launcher", " ".join([launcher, *hydra]), "one that Hydra can start", f"It says: {said}"
        ) from error


def run_numbered(config: DictConfig) -> str:
    """What a launcher calls, in its own process; how the job went is in its folder."""
    number = int(config.job)
    folders: Any = config.folders
    record = run_job(Path(folders[number]), place=f"[{number + 1}/{len(folders)}] ")
    return str(record.status)


def _config(folders: Sequence[Path], root: Path) -> dict[str, Any]:
    logs = str(root / ".hydra")
    return {
        "folders": [str(folder) for folder in folders],
        "job": "???",
        "hydra": {"sweep": {"dir": logs, "subdir": "${hydra.job.num}"}, "job": {"chdir": False}, "output_subdir": None},
    }


@contextlib.contextmanager
def _typed(line: list[str]) -> Iterator[None]:
    """`hydra.main` reads sys.argv, and lets errors through where it is told to."""
    argv, full = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv, os.environ["HYDRA_FULL_ERROR"] = ["sweep", *line], "1"
    try:
        yield
    finally:
        sys.argv = argv
        if full is None:
            del os.environ["HYDRA_FULL_ERROR"]
