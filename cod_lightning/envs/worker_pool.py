"""Worker processes for worlds: started on demand, killed and replaced where one hangs or dies."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any

from msgspec import MsgspecError

from cod_lightning.envs.descendants import end_marked, new_mark
from cod_lightning.envs.world_worker import Call, CallResult, serve
from cod_lightning.errors import EnvironmentFailure, WorldDied, WorldHung, WorldOutOfCPU, WorldOutOfMemory

_START_S = 120.0
"""For a worker to import the world."""
_END_S = 10.0
"""For a worker that was killed to be gone."""
_MOST_BYTES = 2**30
"""Of an answer."""
_PROCESSES = threading.Lock()
"""Held where processes begin and end: multiprocessing keeps its list of children for one thread at a time."""


class Worker:
    """A process and the connection to it."""

    def __init__(self, prototype: bytes, modules: Iterable[str]) -> None:
        context = _context(modules)
        near, far = context.Pipe()
        self.mark = new_mark()
        self.connection: Connection = near
        self.process: BaseProcess = context.Process(target=serve, args=(far, prototype, self.mark), daemon=True)
        with _PROCESSES:
            self.process.start()
        far.close()

    def answer(self, seconds: float) -> CallResult:
        """The next answer. Raises `WorldHung`, `WorldOutOfCPU` or `WorldDied`; the worker is of no use then."""
        try:
            if not self.connection.poll(seconds):
                raise WorldHung(f"no answer within {seconds:g} s; its process was killed")
            return CallResult.read(self.connection.recv_bytes(_MOST_BYTES))
        except MsgspecError:
            raise WorldDied("its process answered what is no answer") from None
        except (EOFError, OSError):
            with _PROCESSES:
                self.process.join(1.0)
                code = self.process.exitcode
            if code == -signal.SIGXCPU:
                raise WorldOutOfCPU("a call computed for too long; its process was killed") from None
            raise WorldDied(f"its process ended with exit code {code}") from None

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


class PendingCall:
    """One call in progress, which another thread can cancel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._cancelled = False

    def assign(self, worker: Worker | None) -> bool:
        """Note the worker that serves it; False if it was cancelled."""
        with self._lock:
            self._worker = worker
            return not self._cancelled

    def cancel(self) -> None:
        """Kill the worker that serves it."""
        with self._lock:
            self._cancelled = True
            if self._worker is not None:
                self._worker.kill()


class WorkerPool:
    """At most `num_workers` processes for the copies of one world.

    Args:
        num_workers: Most processes at a time; a call that finds none free waits.
        prototype: The world, pickled: what a new worker imports.
        modules: Modules that the server which forks the workers imports beforehand.
    """

    def __init__(self, num_workers: int, prototype: bytes, modules: tuple[str, ...]) -> None:
        self.num_workers, self.prototype, self.modules = num_workers, prototype, modules
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
        self._num = 0
        Finalize(self, _kill_all, args=(self._all,), exitpriority=10)  # before multiprocessing waits for its children

    def __reduce__(self) -> tuple[type, tuple[int, bytes, tuple[str, ...]]]:
        """Processes stay where they are."""
        return WorkerPool, (self.num_workers, self.prototype, self.modules)

    def run(self, call: Call, seconds: float, pending: PendingCall) -> CallResult:
        """The answer of a free worker. Raises `EnvironmentFailure`, for what the world raises, or the kind that names a limit."""
        if self._pid != os.getpid():  # a forked child has workers of its own
            self._begin()
        worker = self._take()
        healthy = False
        try:
            if not pending.assign(worker):
                healthy = True
                raise WorldHung("it was called off")
            worker.connection.send(call)
            answer = worker.answer(seconds)
            healthy = pending.assign(None) and not answer.out_of_memory
        except OSError:
            raise WorldDied("its process was gone") from None
        finally:
            pending.assign(None)  # from here on no cancel kills the worker
            self._give_back(worker, healthy)
        if answer.out_of_memory:
            most = call.limits.memory_bytes
            gib = "free" if most is None else f"{most / 2**30:g}"
            raise WorldOutOfMemory(f"a call took more than the {gib} GiB that a worker may take")
        if answer.error:
            failure = EnvironmentFailure(answer.error)
            failure.add_note(f"In its worker process:\n{answer.traceback}")
            raise failure
        return answer

    def _take(self) -> Worker:
        with self._changed:
            while not self._idle and self._num >= self.num_workers:
                self._changed.wait()
            if self._idle:
                return self._idle.pop()
            self._num += 1
        try:
            return self._start()
        except BaseException:
            with self._changed:
                self._num -= 1
                self._changed.notify()
            raise

    def _start(self) -> Worker:
        worker = Worker(self.prototype, self.modules)
        self._all.add(worker)
        try:
            ready = worker.answer(_START_S)
            if ready.error:
                raise EnvironmentFailure(f"a worker process could not make the world: {ready.error}")
        except EnvironmentFailure:
            self._all.discard(worker)
            worker.close()
            raise
        return worker

    def _give_back(self, worker: Worker, healthy: bool) -> None:
        if not healthy:
            self._all.discard(worker)
            worker.close()
        with self._changed:
            if healthy:
                self._idle.append(worker)
            else:
                self._num -= 1
            self._changed.notify()


def _context(modules: Iterable[str]) -> Any:
    """Never a plain fork: this process has threads, and torch. Where there is a fork server, a new worker costs milliseconds."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", __name__, *modules])
    return context


def _kill_all(workers: set[Worker]) -> None:
    for worker in list(workers):
        with contextlib.suppress(ValueError):  # closed meanwhile
            worker.kill()
        end_marked(worker.mark)


def _without_the_fork_server_of_the_parent() -> None:
    """A forked child starts a fork server of its own: multiprocessing would wait for the parent's as for a child, and raise."""
    server: Any = forkserver._forkserver  # pyright: ignore[reportAttributeAccessIssue]
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
    server.__init__()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_without_the_fork_server_of_the_parent)
