"""Builds the cells of a sweep before any of them runs, in a process that goes away again: a typo costs seconds and not a night."""

import contextlib
import io
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from cod_lightning.commands.sweep_plan import Job
from cod_lightning.errors import ConfigError


def check(jobs: Sequence[Job]) -> None:
    """Raise `ConfigError` for the first cell that `fit` would refuse."""
    cells = list({str(sorted(job.record.setting.items())): job for job in jobs}.values())
    if not cells:
        return
    print(f"checking {len(cells)} cells", flush=True)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        for job, said in zip(cells, pool.map(build_error, [job.config for job in cells]), strict=True):
            if said is not None:
                raise ConfigError("sweep", job.record.label, "a cell that can be built", said)


def build_error(config: dict[str, Any]) -> str | None:
    """Why `fit` would refuse the config; None if it would not."""
    from cod_lightning.commands.config_files import temporary_config
    from cod_lightning.commands.train import TrainCLI, quieten, start
    from datamodules import RolloutDataModule
    from modules import GRPOModule

    quieten()
    path = temporary_config("job.yaml", {**config, "warm_start": None})
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            cli = start(TrainCLI, GRPOModule, RolloutDataModule, ["--config", str(path)], execute=False)
        cli.model.credit.check(cli.datamodule.pack_size)
    except ConfigError as error:
        return str(error)
    except SystemExit:
        return told.getvalue().strip().partition("error: ")[2]
    return None
