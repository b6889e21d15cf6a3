"""Processes that serve worlds: started on demand, kept for further calls, ended where a call is called off or fails."""

import contextlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.util import Finalize
from typing import Any, Generic, TypeVar

from cod_lightning.envs.foreign_process import ForeignProcess
from cod_lightning.errors import WorldHung

P = TypeVar("P", bound=ForeignProcess)


class PendingCall:
    """One call, which another thread can call off."""

    def __init__(self) -> None:
        self._lock, self._cancelled = threading.Lock(), False
        self._process: ForeignProcess | None = None

    def __deepcopy__(self, memo: object) -> "PendingCall":
        """A copy of a world makes its own calls."""
        return PendingCall()

    def begin(self, process: ForeignProcess | None) -> bool:
        """Note the process that serves it, None once it is served; False where it was called off."""
        with self._lock:
            self._process = process
            return not self._cancelled

    def cancel(self) -> None:
        """Kill the process that serves it, now or as soon as one would."""
        with self._lock:
            self._cancelled = True
            if self._process is not None:
                self._process.kill()


@dataclass(frozen=True)
class _Held(Generic[P]):
    """The processes of this process; a forked child has its own."""

    pid: int
    free: threading.BoundedSemaphore
    idle: list[P]
    all: set[P]


class ProcessPool(ABC, Generic[P]):
    """At most `most` processes; a call that finds none free waits. Copies of a world share it, and it travels without them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._begin()

    def _begin(self) -> None:
        self._held: _Held[P] = _Held(os.getpid(), threading.BoundedSemaphore(self.most), [], set())
        Finalize(self, _close_all, args=(self._held.all,), exitpriority=10)  # at the end of this process, too

    def __deepcopy__(self, memo: object) -> "ProcessPool[P]":
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_held"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    @abstractmethod
    def start(self) -> P:
        """A process that is ready to serve. Raises `EnvironmentFailure`."""

    @contextlib.contextmanager
    def one(self, pending: PendingCall) -> Iterator[P]:
        """A process for one call. It is kept where the call was neither called off nor raises, and it lasts.

        Raises `WorldHung` where the call was called off before, and what `start` raises.
        """
        if self._held.pid != os.getpid():
            self._begin()
        held = self._held
        with held.free:
            process = self._idle(held) or self.start()
            held.all.add(process)
            healthy = False
            try:
                if not pending.begin(process):
                    healthy = True
                    raise WorldHung("it was called off")
                yield process
                healthy = pending.begin(None) and process.lasts
            finally:
                pending.begin(None)  # from here on no cancel kills the process
                if healthy:
                    held.idle.append(process)
                else:
                    held.all.discard(process)
                    process.close()

    @staticmethod
    def _idle(held: _Held[P]) -> P | None:
        """One that waits; those that have ended are released."""
        while held.idle:
            process = held.idle.pop()
            if process.lasts:
                return process
            held.all.discard(process)
            process.close()
        return None


def _close_all(processes: set[Any]) -> None:
    for process in list(processes):
        with contextlib.suppress(ValueError):  # closed meanwhile
            process.close()
