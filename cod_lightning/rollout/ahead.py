"""A rollout that is played in a thread of its own while training goes on with the one before it."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from cod_lightning.errors import GivenUp
from cod_lightning.rollout.liveness import Liveness

T = TypeVar("T")

_GIVE_UP_S = 30.0
"""Longest wait, at the end of a failed run, for the engine's current turn in a rollout that is given up."""


class RolloutAhead(Generic[T]):
    """At most one rollout, under way in a thread, or over and waiting to be taken.

    The thread makes no collective call. The engine is free for other work after `settle` only.

    Args:
        liveness: Marked by all episodes of the rollout; `give_up` ends them through it.
    """

    def __init__(self, liveness: Liveness) -> None:
        self._liveness = liveness
        self._future: Future[T] | None = None
        self._thread: threading.Thread | None = None
        self._waited_s = 0.0

    def begin(self, play: Callable[[], T]) -> None:
        """Play it beside whatever this thread does next."""
        assert self._future is None, "a rollout ahead has not been taken"
        future: Future[T] = Future()
        self._future = future

        def run() -> None:
            try:
                played = play()
            except BaseException as error:  # raised again where it is taken
                future.set_exception(error)
            else:
                future.set_result(played)

        self._thread = threading.Thread(target=run, name="rollout ahead", daemon=True)
        self._thread.start()

    def put(self, played: T) -> None:
        """Have a rollout wait that is over: one of a checkpoint."""
        self._future = Future()
        self._future.set_result(played)

    def settle(self) -> None:
        """Wait until the rollout under way, if there is one, is over. Signals are handled meanwhile."""
        begun = time.perf_counter()
        if self._future is not None:
            wait([self._future])  # `join` alone would handle no signal
            self._join()
        self._waited_s += time.perf_counter() - begun

    def done(self) -> T | None:
        """The rollout once it is over, without taking it; None where there is none or it failed."""
        self.settle()
        return None if self._future is None or self._future.exception() else self._future.result()

    def take(self) -> T | None:
        """The rollout, None where none was begun. Raises what ended it."""
        self.settle()
        future, self._future = self._future, None
        return None if future is None else future.result()

    def waited_s(self) -> float:
        """Seconds that `settle` took since the last call of this."""
        waited, self._waited_s = self._waited_s, 0.0
        return waited

    def drop(self) -> None:
        """Wait for it and forget it."""
        self.settle()
        self._future = None

    def give_up(self) -> None:
        """End it after its current turn and forget it; what it left in the engine is not cleaned up."""
        future, self._future = self._future, None
        if future is not None and not future.done():
            self._liveness.give_up(GivenUp("the run is over"))
            wait([future], timeout=_GIVE_UP_S)
            if future.done():
                self._liveness.give_up(None)
                self._join()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._thread = None
