"""The next training groups, played in a thread of their own while training goes on with earlier ones."""

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, NamedTuple

import torch

from cod_lightning.errors import GivenUp
from cod_lightning.rollout.deadlines import Liveness
from cod_lightning.rollout.group import collected_by_growth, prepare

_GIVE_UP_S = 30.0
"""Longest wait, at the end of a failed run, for the engine's current turns in groups that are given up."""
_LOOK_S = 0.02
"""Between two looks for groups to begin beside others."""
_AWAKE_S = 0.25
"""Longest wait at a time: a signal is handled after it, at the latest."""


class Begun(NamedTuple):
    """A group that was begun."""

    key: Any
    """What it is, in the words of who began it."""
    future: "Future[Any]"
    """What comes of it."""


Play = tuple["Future[Any]", Callable[[], Coroutine[Any, Any, Any]]]
"""What plays a group, and where that goes."""


class GroupsAhead:
    """Groups ahead of training, in the order in which they were begun.

    Those of a rollout begin together: beside those of others, or once these are complete, in an event loop of their own. The
    thread makes no collective call.

    Args:
        liveness: Marked by all episodes; `give_up` ends them through it.
        watched: Entered for as long as an event loop runs.
    """

    def __init__(self, liveness: Liveness, watched: Callable[[], contextlib.AbstractContextManager[Any]]) -> None:
        self._liveness, self._watched = liveness, watched
        self.begun: list[Begun] = []
        """Without those that are taken."""
        self._to_come: deque[Sequence[Play]] = deque()
        """Of each rollout its groups."""
        self._beside = False
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._playing = False
        self._waited_s = 0.0

    def add(self, key: Any) -> "Future[Any]":
        """Have one more group behind the others; it is to be played, or what came of it is known."""
        future: Future[Any] = Future()
        self.begun.append(Begun(key, future))
        return future

    def play(self, plays: Sequence[Play], *, beside: bool = False) -> None:
        """Play these groups while this thread does something else; `beside`: also while others are under way."""
        with self._guard:
            self._to_come.append(plays)
            self._beside = beside
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
        while True:
            with self._guard:
                if not self._to_come:
                    self._playing = False
                    return
            try:
                # a world that goes elsewhere takes no file of the run along
                with self._watched(), collected_by_growth(), contextlib.chdir(os.getcwd()):
                    asyncio.run(self._drive())
            except BaseException as error:  # no loop, say for want of files; raised again where they are taken
                while plays := self._next():
                    for future, _ in plays:
                        future.set_exception(error)

    async def _drive(self) -> None:
        """Play the groups of a rollout, and beside them those that are to come."""
        prepare(asyncio.get_running_loop(), self._liveness)
        under_way = _tasks(self._next())
        while under_way:
            # all tasks are cancelled where they are given up; others may be begun after that
            with contextlib.suppress(asyncio.CancelledError):
                under_way = (await asyncio.wait(under_way, timeout=_LOOK_S if self._beside else None))[1]
            if self._beside:
                under_way |= _tasks(self._next())

    def _next(self) -> Sequence[Play]:
        with self._guard:
            return self._to_come.popleft() if self._to_come else ()

    def settle(self, groups: Sequence[Begun] | None = None) -> None:
        """Wait until these, or all, are complete. Signals are handled meanwhile."""
        since = time.perf_counter()
        futures = [one.future for one in (self.begun if groups is None else groups)]
        while wait(futures, timeout=_AWAKE_S).not_done:
            pass
        if groups is None:
            self._join()
        self._waited_s += time.perf_counter() - since

    def complete(self, count: int, due: Sequence[Begun]) -> list[Begun]:
        """That many groups once they are complete, without taking them: those that are due, and then the first that are."""
        self.settle(due := due[:count])
        since, others, needed = time.perf_counter(), [one for one in self.begun if one not in due], count - len(due)
        while len(over := [one for one in others if one.future.done()]) < needed:
            wait([one.future for one in others if not one.future.done()], _AWAKE_S, return_when=FIRST_COMPLETED)
        self._waited_s += time.perf_counter() - since
        chosen = [*due, *over[:needed]]
        return [one for one in self.begun if one in chosen]

    def take(self, groups: Sequence[Begun]) -> list[Any]:
        """What came of these, once they are complete. Raises what ended one of them."""
        self.settle(groups)
        found = [one.future.result() for one in groups]
        self.begun = [one for one in self.begun if one not in groups]
        return found

    def waited_s(self) -> float:
        """Seconds that were waited since the last call of this."""
        waited, self._waited_s = self._waited_s, 0.0
        return waited

    def drop(self) -> None:
        """Wait for those that are under way, and forget all."""
        wait(self._forget())
        self._join()

    def give_up(self) -> None:
        """End those that are under way, at the latest after their current turns, and forget all; what they left in the engine stays
        there."""
        under_way = self._forget()
        if any(not future.done() for future in under_way):
            self._liveness.give_up(GivenUp("the run is over"))
            if wait(under_way, timeout=_GIVE_UP_S).not_done:
                return
        self._liveness.give_up(None)
        self._join()

    def _forget(self) -> "list[Future[Any]]":
        """All; returns those that are complete or under way."""
        with self._guard:
            to_come = {future for plays in self._to_come for future, _ in plays}
            self._to_come.clear()
        begun, self.begun = self.begun, []
        return [one.future for one in begun if one.future not in to_come]

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None


def _tasks(plays: Sequence[Play]) -> set[asyncio.Task[None]]:
    return {asyncio.create_task(_to_its_end(*one)) for one in plays}


async def _to_its_end(future: "Future[Any]", play: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    try:
        played = await play()
    except BaseException as error:  # raised again where it is taken
        future.set_exception(error)
    else:
        future.set_result(played)
