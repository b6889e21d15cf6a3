"""Runs a function on several ranks: forked from this process, so that nothing is imported again, in the environment of torchrun."""

import os
import pickle
import signal
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


def on_ranks(
    number: int, function: Callable[[], Any], folder: Path, *, limit_s: float = 120.0, returns: bool = True
) -> list[Any]:
    """What the function returns on each of `number` ranks, if it `returns`; fails, and ends them all, where one fails or hangs."""
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    children = {_start(rank, number, port, function, folder): rank for rank in range(number)}
    try:
        _wait(dict(children), folder, time.monotonic() + limit_s)
    finally:
        for child in children:
            _end(child)
    if not returns:
        return []
    return [pickle.loads((folder / f"rank{rank}.pickle").read_bytes()) for rank in range(number)]


def _start(rank: int, number: int, port: int, function: Callable[[], Any], folder: Path) -> int:
    child = os.fork()
    if child:
        return child
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": number, "LOCAL_WORLD_SIZE": number, "GROUP_RANK": 0}
    told |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "tests"}
    status = 1
    try:
        torch.set_num_threads(1)  # a pool of threads does not outlive a fork
        if number > 1:
            os.environ |= {name: str(value) for name, value in told.items()}
        (folder / f"rank{rank}.pickle").write_bytes(pickle.dumps(function()))
        status = 0
    except BaseException:
        (folder / f"rank{rank}.failed").write_text(traceback.format_exc())
    finally:
        os._exit(status)


def _wait(running: dict[int, int], folder: Path, deadline: float) -> None:
    while running:
        for child, rank in list(running.items()):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                del running[child]
                failed = folder / f"rank{rank}.failed"
                assert status == 0, failed.read_text() if failed.exists() else f"rank {rank} ended with {status}"
        assert time.monotonic() < deadline, f"ranks {sorted(running.values())} hang"
        time.sleep(0.01)


def _end(child: int) -> None:
    try:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    except (ProcessLookupError, ChildProcessError):  # it has been waited for
        pass


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
