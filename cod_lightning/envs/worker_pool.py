"""Worker processes that step worlds: killed and replaced where one hangs or dies."""

import os
import pickle
import socket
import subprocess
import sys
import time

import msgspec

from cod_lightning.envs.foreign_process import ForeignProcess
from cod_lightning.envs.process_pool import PendingCall, ProcessPool
from cod_lightning.envs.world_worker import LENGTH, Call, CallResult
from cod_lightning.errors import EnvironmentFailure, WorldDied, WorldHung, WorldOutOfMemory

_START_S = 120.0
"""For a worker to import the world."""
_END_S = 1.0
"""For one whose answer ended to be gone."""
_MOST_BYTES, _AT_ONCE = 2**30, 2**20
"""Of an answer, and of what is read at once."""
_START = (
    "import sys; _, control, *sys.path = sys.argv; del sys.argv[1:]; "
    "from cod_lightning.envs.world_worker import main; main(int(control))"
)


class Worker(ForeignProcess):
    """A process and the socket to it."""

    def __init__(self) -> None:
        self.socket, far = socket.socketpair()
        with far:
            command = [sys.executable, "-c", _START, str(far.fileno()), *sys.path]
            super().__init__(command, os.environ, stdin=subprocess.DEVNULL, pass_fds=[far.fileno()])

    def ask(self, request: bytes, seconds: float) -> CallResult:
        """Its answer. Raises `WorldHung` or `WorldDied`; the worker is of no use then."""
        until = time.monotonic() + seconds
        try:
            self.socket.settimeout(seconds)
            self.socket.sendall(LENGTH.pack(len(request)) + request)
            (length,) = LENGTH.unpack(self._received(LENGTH.size, until))
            if length > _MOST_BYTES:
                raise msgspec.MsgspecError
            return msgspec.msgpack.decode(self._received(length, until), type=CallResult)
        except TimeoutError:
            raise WorldHung(f"no answer within {seconds:g} s; its process was killed") from None
        except msgspec.MsgspecError:
            raise WorldDied("its process answered what is no answer") from None
        except OSError:
            raise WorldDied(f"its process ended with exit code {self.code(_END_S)}") from None

    def _received(self, num: int, until: float) -> bytes:
        """So many bytes. Raises `TimeoutError`, and `ConnectionError` where there are no more."""
        found = bytearray()
        while len(found) < num:
            self.socket.settimeout(max(1e-3, until - time.monotonic()))
            if not (part := self.socket.recv(min(_AT_ONCE, num - len(found)))):
                raise ConnectionError
            found += part
        return bytes(found)

    def close(self) -> None:
        super().close()
        self.socket.close()


class WorkerPool(ProcessPool[Worker]):
    """Workers for the copies of one world.

    Args:
        num_workers: Most processes at a time.
        prototype: The world, pickled: what a new worker imports.
    """

    def __init__(self, num_workers: int, prototype: bytes) -> None:
        super().__init__(num_workers)
        self.prototype = prototype

    def run(self, call: Call, seconds: float, pending: PendingCall) -> CallResult:
        """The answer of a free worker. Raises `EnvironmentFailure`, for what the world raises, or the kind that names a limit."""
        with self.one(pending) as worker:
            answer = worker.ask(pickle.dumps(call, pickle.HIGHEST_PROTOCOL), seconds)
            worker.reads_on = not answer.out_of_memory
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
        worker = Worker()
        try:
            ready = worker.ask(self.prototype, _START_S)
            if ready.error:
                raise EnvironmentFailure(f"a worker process could not make the world: {ready.error}")
        except BaseException:
            worker.close()
            raise
        return worker
