"""Time limits of turns, episodes and rewards, calls that may never return, and the watchdog of a process that no longer moves."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from traceback import walk_stack
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from cod_lightning.markdown import visible
from cod_lightning.ranges import Positive

EXIT_STALLED = 70
"""Exit code of a run that stalled; `--ckpt_path last` goes on from its last checkpoint."""
STALLED = "stalled.txt"
"""In the folder of the run: where every thread was."""
_LONGEST_TICK_S = 5.0
_STDERR = 2
_T = TypeVar("_T")
_MOST_THREADS = 1024
"""Bounded calls of one event loop at a time; what is asynchronous needs no thread."""
_PLACES: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]" = WeakKeyDictionary()


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """Seconds of wall clock, waiting in a queue of the engine or for a free worker process included; null: no limit.

    A lifecycle that exceeds a limit fails (counted by name) and frees its place in the engine; all others go on.
    Deadlines are checked where a lifecycle waits: for an engine, or for a world in a process or thread of its own. A world
    that computes in this process has to be wrapped in `ProcessWorld` to be broken off.
    """

    turn_s: Positive | None = None
    """For an engine to answer one turn."""
    episode_s: Positive | None = None
    """For one episode, a solve or an update."""
    reward_s: Positive | None = 300.0
    """For one part of an episode's reward, a judge's answer for example."""
    stall_s: Positive | None = 1800.0
    """With no turn and no step of a world finished anywhere for so long, the process writes down where every thread is and exits
    with code 70, to be resumed; null: it waits forever. So long may a weight sync take, the choice of a rollout's packs, and the
    building of the environment with its data."""


class Limited:
    """`async with`: ends what takes longer than so many seconds. Raises what `late` gives.

    Args:
        limit_s: Seconds; None: no limit, at the cost of two calls, since every turn of a rollout goes through here.
        late: What is raised.
    """

    __slots__ = ("_late", "_limit")

    def __init__(self, limit_s: float | None, late: Callable[[], Exception]) -> None:
        self._limit, self._late = None if limit_s is None else asyncio.timeout(limit_s), late

    async def __aenter__(self) -> None:
        if self._limit is not None:
            await self._limit.__aenter__()

    async def __aexit__(self, *raised: Any) -> None:
        if self._limit is None:
            return
        try:
            await self._limit.__aexit__(*raised)
        except TimeoutError:
            raise self._late() from None


async def in_thread(call: Callable[[], _T], *, bounded: bool = False) -> _T:
    """What a call that blocks returns or raises. Where this is cancelled the call goes on, and what comes of it is dropped.

    Its thread ends with the process: no end of a run waits for a call that does not return. An executor's threads would be waited
    for when the loop is closed, and again when the process ends.
    """
    loop = asyncio.get_running_loop()
    place = _PLACES.setdefault(loop, asyncio.Semaphore(_MOST_THREADS)) if bounded else nullcontext()
    async with place:
        future: asyncio.Future[_T] = loop.create_future()
        work = (copy_context().run, call, loop, future)
        threading.Thread(target=_work, args=work, daemon=True, name="blocking call").start()
        return await future


def _work(run: Callable[..., _T], call: Callable[[], _T], loop: asyncio.AbstractEventLoop, future: Any) -> None:
    try:
        settle, found = future.set_result, run(call)
    except BaseException as error:
        settle, found = future.set_exception, error
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(lambda: future.done() or settle(found))


class Liveness:
    """Marked wherever a lifecycle hands over to an engine or a world; costs a dictionary write."""

    def __init__(self) -> None:
        self.beats = 0
        """Rises with every mark."""
        self._where: dict[str, tuple[str, float]] = {}
        self._over: BaseException | None = None

    def give_up(self, error: BaseException | None) -> None:
        """From now on every mark raises this, so that whatever goes by this liveness ends with its current turn; None: no more."""
        self._over = error

    @property
    def is_over(self) -> bool:
        """Whether it was given up."""
        return self._over is not None

    def at(self, identity: str, place: str) -> None:
        """The episode `identity` is now in the `engine` or in the `world`."""
        if self._over is not None:
            raise self._over
        self._where[identity] = (place, time.monotonic())
        self.beats += 1

    def over(self, identity: str) -> None:
        """The episode has ended."""
        self._where.pop(identity, None)
        self.beats += 1

    def lines(self, most: int = 32) -> list[str]:
        """The live episodes, the one that moved last first: in a process that hangs, it is the one that holds up the others."""
        now = time.monotonic()
        live = sorted(self._where.copy().items(), key=lambda item: -item[1][1])
        lines = [f"{identity}: in the {place} for {now - since:.1f} s" for identity, (place, since) in live[:most]]
        return lines + ([f"and {len(live) - most:,} more"] if len(live) > most else [])


class Watchdog:
    """A thread that looks at a liveness for as long as a `with` block lasts.

    An engine or a world that hangs in this process holds up the event loop, so that no deadline can be looked at; only another
    thread can tell. It counts its own ticks rather than the clock: a process that was stopped and continued has not hung.

    Args:
        liveness: What has to move.
        stall_s: For how long it may stand still; None: forever.
        file: Where the report goes, beside stderr.
        label: What is going on, for the report.
        remedy: How to go on after it, for the report.
    """

    def __init__(
        self,
        liveness: Liveness,
        stall_s: float | None,
        file: Path,
        label: str,
        remedy: str = "go on with --ckpt_path last",
    ) -> None:
        self.liveness, self.stall_s, self.file, self.label, self.remedy = liveness, stall_s, file, label, remedy
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rollout watchdog", daemon=True)

    def __enter__(self) -> "Watchdog":
        """Watch."""
        if self.stall_s is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Watch no more."""
        self._over.set()
        if self.stall_s is not None:
            self._thread.join()

    def _watch(self) -> None:
        assert self.stall_s is not None
        tick = min(_LONGEST_TICK_S, self.stall_s / 8)
        seen, still = self.liveness.beats, 0.0
        while not self._over.wait(tick):
            still = still + tick if self.liveness.beats == seen else 0.0
            seen = self.liveness.beats
            if still >= self.stall_s:
                self._give_up()

    def _give_up(self) -> None:
        lines = self.liveness.lines()
        said = [
            f"error: nothing has moved for {self.stall_s:g} s in {self.label} (data.deadlines.stall_s). Live episodes:",
            *(f"  {line}" for line in lines or ["none"]),
            f"Stacks of all threads follow, also in {self.file}. Exit code {EXIT_STALLED}; {self.remedy}.",
            "",
        ]
        for number, frame in sys._current_frames().items():
            said += [f"Thread {number:#x} (most recent call first):"]
            said += [
                f'  File "{of.f_code.co_filename}", line {n} in {of.f_code.co_name}' for of, n in walk_stack(frame)
            ]
        text = visible("\n".join([*said, ""]))  # names are an environment's
        try:
            for write in (partial(os.write, _STDERR, text.encode()), partial(self._keep, text)):
                writing = threading.Thread(target=write, daemon=True)
                writing.start()
                writing.join(_LONGEST_TICK_S)  # the pipe may have no reader, and the disk may be away
        finally:
            os._exit(EXIT_STALLED)

    def _keep(self, text: str) -> None:
        with suppress(OSError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.unlink(missing_ok=True)  # a link there is replaced, never followed: a folder may be foreign
            self.file.write_text(text)
