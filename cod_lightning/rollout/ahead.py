"""The next training rollouts, played in a thread of their own while training goes on with an earlier one."""

import math
import threading
import time
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, NamedTuple

import torch

from cod_lightning.errors import GivenUp
from cod_lightning.rollout.deadlines import Liveness

_GIVE_UP_S = 30.0
"""Longest wait, at the end of a failed run, for the engine's current turn in a rollout that is given up."""
_STOP_S = 1.0
"""Longest wait after a signal, for a world that holds up the thread."""
_LOOK_S = 0.25


class Begun(NamedTuple):
    """A rollout that was begun, or a group of one."""

    key: Any
    """What it is, in the words of who began it."""
    future: "Future[Any]"
    """What comes of it."""


class RolloutAhead:
    """Rollouts ahead of training, in their order: those that are over, the one under way in a thread, those to come.

    The thread makes no collective call. The engine is free for other work after `settle`, and within `between`.

    Args:
        liveness: Marked by all episodes of a rollout; `give_up` ends them through it.
    """

    def __init__(self, liveness: Liveness) -> None:
        self._liveness = liveness
        self.begun: list[Begun] = []
        """In their order, without those that are taken."""
        self._plays: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        """Those of them to come."""
        self._guard, self._engine = threading.Lock(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._playing = False
        self._waited_s = 0.0
        self._stopped_at = math.inf
        """When a signal came, by the monotonic clock."""

    def begin(self, play: Callable[[], Any], key: Any = None) -> None:
        """Play it after those that were begun before, beside whatever this thread does next; `key` says what it is."""
        future: Future[Any] = Future()
        self.begun.append(Begun(key, future))
        with self._guard:
            self._plays.append((future, play))
            if self._playing:
                return
            self._playing = True
        gpu = torch.cuda.current_device() if torch.cuda.is_initialized() else None
        self._thread = threading.Thread(target=self._play_on, args=(gpu,), name="rollout ahead", daemon=True)
        self._thread.start()

    def _play_on(self, gpu: int | None) -> None:
        """On the GPU of the thread that begins them: a thread of its own is on the first one."""
        if gpu is not None:
            torch.cuda.set_device(gpu)
        self._play()

    def _play(self) -> None:
        while True:
            with self._guard:
                if not self._plays:
                    self._playing = False
                    return
                future, play = self._plays.popleft()
            with self._engine:
                try:
                    played = play()
                except BaseException as error:  # raised again where it is taken
                    future.set_exception(error)
                else:
                    future.set_result(played)

    def put(self, played: Any, key: Any = None) -> None:
        """Have a rollout wait that is over: one of a checkpoint."""
        future: Future[Any] = Future()
        future.set_result(played)
        self.begun.append(Begun(key, future))

    @property
    def stopped(self) -> bool:
        """Whether a signal has come."""
        return self._stopped_at < math.inf

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return self._thread is None or not self._thread.is_alive()

    def stop(self) -> None:
        """A signal has come: give up what is under way and what is to come. A handler may call it at any moment."""
        self._stopped_at = time.monotonic()
        self._liveness.give_up(GivenUp("the run stops"))

    def given_up(self) -> list[Any]:
        """After a signal, the keys of those that were begun and not played, up to the first without a key."""
        ends = GivenUp | CancelledError
        left = [key for key, of in self.begun if not of.done() or isinstance(of.exception(), ends)]
        return list(takewhile(lambda key: key is not None, left))

    def settle(self, most: int | None = None) -> None:
        """Wait until all, or the first `most`, are over or given up. Signals are handled meanwhile."""
        since, waiting = time.perf_counter(), [one.future for one in self.begun[:most]]
        while wait(waiting, timeout=_LOOK_S).not_done and time.monotonic() < self._stopped_at + _STOP_S:
            pass  # `join` alone would handle no signal
        if most is None or len(self.begun) <= most:
            self._join()
        self._waited_s += time.perf_counter() - since

    @contextmanager
    def between(self) -> Iterator[None]:
        """Wait for the one under way; none begins within."""
        since = time.perf_counter()
        with self._engine:
            self._waited_s += time.perf_counter() - since
            yield

    def over(self) -> list[Any]:
        """Those that are over, without taking them, up to the first that is not or failed."""
        futures = (one.future for one in self.begun)
        return [of.result() for of in takewhile(lambda of: of.done() and not of.exception(), futures)]

    def take(self, place: int = 0) -> Any:
        """The one at this place in the queue once it is over, None where none was begun. Raises what ended it."""
        self.settle(place + 1)
        return self.begun.pop(place).future.result() if self.begun else None

    def waited_s(self) -> float:
        """Seconds that were waited since the last call of this."""
        waited, self._waited_s = self._waited_s, 0.0
        return waited

    def drop(self) -> None:
        """Wait for the one under way and forget all."""
        wait(self._under_way())
        self._join()
        self.begun.clear()

    def give_up(self) -> None:
        """End the one under way, at the latest after its current turn, and forget all; what it left in the engine stays there."""
        under_way = self._under_way()
        self.begun.clear()
        if any(not future.done() for future in under_way):
            self._liveness.give_up(GivenUp("the run is over"))
            if wait(under_way, timeout=_STOP_S if self.stopped else _GIVE_UP_S).not_done:
                return
        self._liveness.give_up(None)
        self._stopped_at = math.inf
        self._join()

    def _under_way(self) -> list[Future[Any]]:
        """All but those to come, which will not be played any more."""
        with self._guard:
            to_come = {future for future, _ in self._plays}
            self._plays.clear()
        return [one.future for one in self.begun if one.future not in to_come]

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join(max(0.0, self._stopped_at + _STOP_S - time.monotonic()) if self.stopped else None)
        if self.idle:
            self._thread = None
