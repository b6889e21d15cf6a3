"""Worlds whose calls are coroutines (a container, a browser): any number of them wait at the same time, without a thread each."""

import asyncio
import os
import threading
from abc import abstractmethod
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from cod_lightning.envs.base import Stepped, TextEnv
from cod_lightning.errors import EnvironmentFailure, described
from cod_lightning.types import Task

_T = TypeVar("_T")


class WorldLoop:
    """An event loop in a thread, of this process alone: a forked child begins one of its own."""

    def __init__(self) -> None:
        self._lock, self._pid = threading.RLock(), 0  # what is forgotten meanwhile begins its end here, too

    def begin(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """What the coroutine will return; where it raises `SystemExit` or `KeyboardInterrupt`, `EnvironmentFailure`."""
        with self._lock:
            if self._pid != os.getpid():
                self._pid, self._loop = os.getpid(), asyncio.new_event_loop()
                threading.Thread(target=_run, args=(self._loop,), daemon=True, name="worlds").start()
        return asyncio.run_coroutine_threadsafe(_kept_apart(work), self._loop)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """For good, also where a task that a world leaves behind would end the loop, and with it all other worlds."""
    while not loop.is_closed():
        with suppress(BaseException):
            loop.run_forever()


async def _kept_apart(work: Coroutine[Any, Any, _T]) -> _T:
    """The result. What would end the loop, and with it all other worlds, ends this one."""
    try:
        return await work
    except (SystemExit, KeyboardInterrupt) as error:
        raise EnvironmentFailure(described(error)) from error


WORLD_LOOP = WorldLoop()
"""All worlds' coroutines run here, whichever rollout or check asks: what a world keeps open stays usable from one to the next."""


class AsyncWorld(TextEnv):
    """A world that is awaited: `open`, `act` and `leave` are coroutines, in the loop that all such worlds share.

    A deadline of the rollout cancels the call under way, and `leave` follows. Code that computes or blocks belongs in
    `asyncio.to_thread`, since it holds up all other worlds.
    """

    @abstractmethod
    async def open(self, task: Task) -> str:
        """Begin the task; its first observation."""

    @abstractmethod
    async def act(self, action: str) -> Stepped:
        """Carry the answer out; what `TextEnv.step` returns."""

    async def leave(self) -> None:
        """The lifecycle has ended: give back what the world holds."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """In a running event loop a future to await; elsewhere it waits."""

        async def opened() -> tuple[str, dict[str, Any]]:
            assert options is not None, "an asynchronous world begins with a task"
            return await self.open(options["task"]), {}

        return _awaited(opened())

    def step(self, action: str) -> Any:
        """As `reset`."""
        return _awaited(self.act(action))

    def close(self) -> Any:
        """As `reset`."""
        return _awaited(self.leave())


def _awaited(work: Coroutine[Any, Any, Any]) -> Any:
    begun = WORLD_LOOP.begin(work)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return begun.result()
    return asyncio.wrap_future(begun, loop=loop)
