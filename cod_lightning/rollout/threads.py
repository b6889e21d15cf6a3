"""Calls that block, each in a thread that ends with the process: no end of a run waits for one that does not return."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

_T = TypeVar("_T")
_MOST_THREADS = 1024
"""Bounded calls of one event loop at a time; what is asynchronous needs no thread."""
_PLACES: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]" = WeakKeyDictionary()


async def in_thread(call: Callable[[], _T], *, bounded: bool = False) -> _T:
    """What the call returns or raises. Where this is cancelled the call goes on, and what comes of it is dropped.

    An executor's threads would be waited for when the loop is closed, and again when the process ends.
    """
    loop = asyncio.get_running_loop()
    place = _PLACES.setdefault(loop, asyncio.Semaphore(_MOST_THREADS)) if bounded else contextlib.nullcontext()
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
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(lambda: future.done() or settle(found))
