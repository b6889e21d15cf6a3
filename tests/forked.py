"""Runs a function on several ranks: forked from this process, so that nothing is imported again, in the environment of torchrun."""

import os
import pickle
import signal
import socket
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def alive(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Ranks:
    """A function on several ranks, each in a child of this process."""

    def __init__(self, number: int, function: Callable[[], Any], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        port = _free_port()
        self.folder = folder
        self.children = [_start(rank, number, port, function, folder) for rank in range(number)]
        self._running = {child: rank for rank, child in enumerate(self.children)}

    def signal(self, number: int, ranks: Sequence[int]) -> None:
        """Send it to those of the ranks that are still there."""
        for child, rank in self._running.items():
            if rank in ranks:
                os.kill(child, number)

    def ended(self) -> bool:
        """Whether all are gone; AssertionError where one failed."""
        for child, rank in list(self._running.items()):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                del self._running[child]
                failed = self.folder / f"rank{rank}.failed"
                assert status == 0, failed.read_text() if failed.exists() else f"rank {rank} ended with {status}"
        return not self._running

    def wait(self, limit_s: float) -> None:
        """Until all are gone; ends them, and fails, where one fails or is still there after so many seconds."""
        deadline = time.monotonic() + limit_s
        try:
            while not self.ended():
                assert time.monotonic() < deadline, f"ranks {sorted(self._running.values())} hang"
                time.sleep(0.01)
        finally:
            for child in self._running:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)

    def results(self, limit_s: float) -> list[Any]:
        """What the function returned on each rank."""
        self.wait(limit_s)
        return [pickle.loads((self.folder / f"rank{rank}.pickle").read_bytes()) for rank in range(len(self.children))]


def on_ranks(
    number: int, function: Callable[[], Any], folder: Path, *, limit_s: float = 240.0, returns: bool = True
) -> list[Any]:
    """What the function returns on each of `number` ranks, if it `returns`; fails, and ends them all, where one fails or hangs."""
    ranks = Ranks(number, function, folder)
    if returns:
        return ranks.results(limit_s)
    ranks.wait(limit_s)
    return []


def on_two_ranks(folder: Path, act: Callable[[int], Any], *, grouped: bool = True) -> list[Any]:
    """What `act` returns on rank 0 and 1; not `grouped`: it makes the group itself, from the environment, as under torchrun."""

    def on_rank() -> Any:
        if grouped:
            dist.init_process_group("gloo")
        return act(int(os.environ["RANK"]))

    return on_ranks(2, on_rank, folder)


def with_engines(folder: Path, make: Callable[[], Any], act: Callable[[Any], Any]) -> list[Any]:
    """What `act` returns on each of two ranks, given an engine that `make` makes there and that is closed when both are done."""

    def on_rank(rank: int) -> Any:
        engine = make()
        try:
            return act(engine)
        finally:
            dist.barrier()
            engine.close()

    return on_two_ranks(folder, on_rank)


def _start(rank: int, number: int, port: int, function: Callable[[], Any], folder: Path) -> int:
    child = os.fork()
    if child:
        return child
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": number, "LOCAL_WORLD_SIZE": number, "GROUP_RANK": 0}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "tests"}
    status = 1
    try:
        torch.set_num_threads(1)  # a pool of threads does not outlive a fork
        if number > 1:
            os.environ |= {name: str(value) for name, value in variables.items()}
        (folder / f"rank{rank}.pickle").write_bytes(pickle.dumps(function()))
        status = 0
    except BaseException:
        (folder / f"rank{rank}.failed").write_text(traceback.format_exc())
    finally:
        os._exit(status)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
