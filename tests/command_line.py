"""Commands as a user types them, in processes of their own, and the metrics that a run left."""

import copy
import csv
import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from pathlib import Path

import pytest
import torch

from cod_lightning.commands import config_files, shipped

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-m", "cod_lightning"]


def cod(*arguments, cwd, path=(), cache=None, fresh=False, timeout=600):
    """`python -m cod_lightning` with these arguments, these folders on the path, and this cache in place of the tests'.

    Unless `fresh`, the process is forked off this one, so that the libraries are not imported again, which takes longer than most
    commands.
    """
    added = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, *path)))}
    added |= {} if cache is None else {"COD_LIGHTNING_CACHE": str(cache)}
    if fresh:
        env = os.environ | added
        return subprocess.run([*COMMAND, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout)
    from cod_lightning.commands import deploy, train  # noqa: F401  for the child

    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if not child:
            _become(arguments, cwd, path, added, out, err)
        code = _waited(child, timeout)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess([*COMMAND, *arguments], code, out.read(), err.read())


def _waited(child, timeout):
    """Exit code of the child, which is killed at the end of its time."""

    def kill(*_):
        os.kill(child, signal.SIGKILL)

    timer = threading.Timer(timeout, kill)
    timer.start()
    try:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        timer.cancel()


def _become(arguments, cwd, path, added, out, err):
    status = 1
    try:
        for number, source in enumerate((os.open(os.devnull, os.O_RDONLY), out.fileno(), err.fileno())):
            os.dup2(source, number)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode) for n, mode in enumerate(("r", "w", "w")))
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr
        warnings.resetwarnings()  # in tests they are errors
        os.chdir(cwd)
        os.environ |= added
        sys.path[:0] = [str(cwd), *map(str, path)]
        sys.argv = [str(ROOT / "cod_lightning" / "__main__.py")]
        from cod_lightning.cli import main

        torch.set_num_threads(torch.get_num_threads())  # renews the pool, in which two threads of a fork would race
        status = main(arguments)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status or 0)


def rows(folder):
    """Rows of the run's `metrics.csv`."""
    with (folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def stopped(monkeypatch, *line):
    """The CLI of a command line at the moment when its training or test would begin."""
    from cod_lightning.cli import main
    from cod_lightning.commands.train import TrainCLI

    built = []

    def stop(self, action):
        assert action == line[0]
        built.append(self)
        raise SystemExit(99)

    monkeypatch.setattr(TrainCLI, "act", stop)
    with pytest.raises(SystemExit, match="99"):
        main(list(line))
    return built[0]


@functools.cache
def _composed_once(path, choices):
    return shipped.composed(path, choices)


def keep_compositions(monkeypatch):
    """What Hydra makes of a config and choices is kept for the next time: half of the time until a run begins or is refused."""

    def kept(path, choices):
        return copy.deepcopy(_composed_once(path, tuple(choices)))

    monkeypatch.setattr(config_files, "composed", kept)


def by_strategy(name: str) -> tuple[str, ...]:
    """What chooses it on the command line: Lightning's own by name, FSDP2's settings by their file."""
    return (f"strategy={name}",) if name == "fsdp2" else ("--trainer.strategy", name)
