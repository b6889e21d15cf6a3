"""Worker processes that step worlds: killed and replaced where one hangs or dies."""

import contextlib
import multiprocessing
import os
import signal
import struct
import threading
import time
from collections.abc import Iterable
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from msgspec import MsgspecError

from cod_lightning.envs.descendants import end_marked, new_mark
from cod_lightning.envs.process_pool import PendingCall, ProcessPool
from cod_lightning.envs.world_worker import Call, CallResult, serve
from cod_lightning.errors import EnvironmentFailure, WorldDied, WorldHung, WorldOutOfMemory

_START_S = 120.0
"""For a worker to import the world."""
_END_S = 10.0
"""For a worker that was killed to be gone."""
_MOST_BYTES, _AT_ONCE = 2**30, 2**20
"""Of an answer, and of what is read at once."""
_PROCESSES = threading.RLock()
"""Held where processes begin and end: multiprocessing keeps its list of children for one thread at a time."""


class Worker:
    """A process and the connection to it."""

    def __init__(self, prototype: bytes, modules: Iterable[str]) -> None:
        context = _context(modules)
        near, far = context.Pipe()
        self.lasts = True
        self.mark = new_mark()
        self.connection: Connection = near
        self.process: BaseProcess = context.Process(target=serve, args=(far, prototype, self.mark), daemon=True)
        with _PROCESSES:
            self.process.start()
        far.close()

    def answer(self, seconds: float) -> CallResult:
        """The next answer. Raises `WorldHung` or `WorldDied`; the worker is of no use then."""
        try:
            return CallResult.read(self._received(time.monotonic() + seconds))
        except TimeoutError:
            raise WorldHung(f"no answer within {seconds:g} s; its process was killed") from None
        except MsgspecError:
            raise WorldDied("its process answered what is no answer") from None
        except (EOFError, OSError):
            with _PROCESSES:
                self.process.join(1.0)
                code = self.process.exitcode
            raise WorldDied(f"its process ended with exit code {code}") from None

    def _received(self, until: float) -> bytes:
        """The next message, in multiprocessing's form, whose own reader waits for the rest of a message without end. Raises
        `TimeoutError`, and `EOFError` where there is none."""
        file = self.connection.fileno()

        def taken(num: int) -> bytes:
            found = bytearray()
            while len(found) < num:
                if not self.connection.poll(max(0.0, until - time.monotonic())):
                    raise TimeoutError
                if not (part := os.read(file, min(_AT_ONCE, num - len(found)))):
                    raise EOFError
                found += part
            return bytes(found)

        (num,) = struct.unpack("!i", taken(4))
        if num == -1:
            (num,) = struct.unpack("!Q", taken(8))
        if not 0 <= num <= _MOST_BYTES:
            raise MsgspecError
        return taken(num)

    def kill(self) -> None:
        """End the process and what its world has started, whatever they do; who waits for its answer gets `WorldDied`."""
        # Either is raised before it leads a group of its own, or after its end.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.process.pid is not None:
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()

    def close(self) -> None:
        """Kill it and release its resources."""
        self.kill()
        self.connection.close()
        with _PROCESSES:
            self.process.join(_END_S)
            if self.process.exitcode is not None:  # else it waits for a disk or a driver, and the system cannot end it
                self.process.close()
        end_marked(self.mark)


class WorkerPool(ProcessPool[Worker]):
    """Workers for the copies of one world.

    Args:
        num_workers: Most processes at a time.
        prototype: The world, pickled: what a new worker imports.
        modules: Modules that the server which forks the workers imports beforehand.
    """

    def __init__(self, num_workers: int, prototype: bytes, modules: tuple[str, ...]) -> None:
        super().__init__(num_workers)
        self.prototype, self.modules = prototype, modules

    def run(self, call: Call, seconds: float, pending: PendingCall) -> CallResult:
        """The answer of a free worker. Raises `EnvironmentFailure`, for what the world raises, or the kind that names a limit."""
        with self.one(pending) as worker:
            try:
                worker.connection.send(call)
            except OSError:
                raise WorldDied("its process was gone") from None
            answer = worker.answer(seconds)
            worker.lasts = not answer.out_of_memory
        if answer.out_of_memory:
            most = call.memory_bytes
            gib = "free" if most is None else f"{most / 2**30:g}"
            raise WorldOutOfMemory(f"a call took more than the {gib} GiB that a worker may take")
        if answer.error:
            failure = EnvironmentFailure(answer.error)
            failure.add_note(f"In its worker process:\n{answer.traceback}")
            raise failure
        return answer

    def start(self) -> Worker:
        worker = Worker(self.prototype, self.modules)
        try:
            ready = worker.answer(_START_S)
            if ready.error:
                raise EnvironmentFailure(f"a worker process could not make the world: {ready.error}")
        except BaseException:
            worker.close()
            raise
        return worker


def _context(modules: Iterable[str]) -> Any:
    """Never a plain fork: this process has threads, and torch. Where there is a fork server, a new worker costs milliseconds."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", __name__, *modules])
    return context


def _without_the_fork_server_of_the_parent() -> None:
    """A forked child starts a fork server of its own: multiprocessing would wait for the parent's as for a child, and raise."""
    server: Any = forkserver._forkserver  # pyright: ignore[reportAttributeAccessIssue]
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
    server.__init__()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_without_the_fork_server_of_the_parent)
