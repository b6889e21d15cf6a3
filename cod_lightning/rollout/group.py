"""Many lifecycles at once: K siblings of every pack, each a coroutine of its own, none waiting for another.

Garbage is collected when the process has grown, not for the tens of thousands of records that a rollout makes.
"""

import asyncio
import contextlib
import gc
import os
import resource
import threading
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cod_lightning.errors import ENDS, unless_stopped
from cod_lightning.process_memory import give_back, resident
from cod_lightning.rewards.base import compared
from cod_lightning.rollout.deadlines import Liveness
from cod_lightning.rollout.lifecycle import run_lifecycle
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Group, Pack

_LOOK_S, _AWAKE_S, _STOP_S = 0.05, 0.5, 1.0
_LEAST_GROWTH, _SHARE = 2**27, 0.25
"""Bytes, and share of what the process held after the last collection, by which it grows before the next one."""
_MOST_FILES = 0.125
"""Share of the descriptors that the process may have by which they grow before the next one."""
_FILES = Path("/proc/self/fd")
_MOST_THREADS = 1024
"""Rewards that wait for something outside in `asyncio.to_thread` at the same time."""


async def run_group(pack: Pack, num_siblings: int, setting: Setting) -> Group:
    """K lifecycles of one pack; all begin with the same first prompt and differ by their sampling noise.

    Siblings are compared, where a part of the reward does that, when all of them have ended.
    """
    started = (run_lifecycle(pack, k, setting) for k in range(num_siblings))
    group = Group(pack=pack, lifecycles=tuple(await asyncio.gather(*started)))
    limit_s = setting.sampler.deadlines.reward_s
    return await compared(group, setting.rewards, limit_s) if num_siblings > 1 else group


def _run(main: Coroutine[Any, Any, None]) -> None:
    """`asyncio.run`, which a signal ends without a word: tasks that waited for the one that got it pass it on, one by one."""
    with asyncio.Runner() as runner:
        try:
            runner.run(main)
        except ENDS:
            loop = runner.get_loop()
            loop.set_exception_handler(lambda loop, context: None)
            while tasks := asyncio.all_tasks(loop):
                for task in tasks:
                    task.cancel()
                with contextlib.suppress(*ENDS):  # a world that does not close is cancelled again
                    loop.run_until_complete(asyncio.wait(tasks, timeout=_STOP_S))
            raise


def _stay_awake(loop: asyncio.AbstractEventLoop, liveness: Liveness) -> None:
    """Wake the loop now and then: a signal that comes just before it goes to sleep waits for the next event.

    What another thread gives up ends here where it waits for something outside.
    """
    if liveness.is_over and threading.current_thread() is not threading.main_thread():
        for task in asyncio.all_tasks(loop):
            task.cancel()
    loop.call_later(_AWAKE_S, _stay_awake, loop, liveness)


def prepare(loop: asyncio.AbstractEventLoop, liveness: Liveness) -> None:
    """Make it ready for lifecycles, which `liveness` ends."""
    loop.set_default_executor(ThreadPoolExecutor(_MOST_THREADS))  # made as they are needed
    loop.set_exception_handler(unless_stopped)
    _stay_awake(loop, liveness)


def run_groups(packs: Sequence[Pack], num_siblings: int, setting: Setting, *, label: str = "rollout") -> list[Group]:
    """One group for each pack, in the order of the packs."""
    groups: list[Group] = []

    async def run_all() -> None:  # returns nothing: asyncio puts a result of `run` into words when it is over
        prepare(asyncio.get_running_loop(), setting.sampler.liveness)
        groups.extend(await asyncio.gather(*(run_group(pack, num_siblings, setting) for pack in packs)))

    setting.monitor.begin(label, len(packs) * num_siblings, max((len(pack) for pack in packs), default=0))
    # a world that goes elsewhere takes no file of the run along
    with collected_by_growth(), contextlib.chdir(os.getcwd()):
        _run(run_all())
    return groups


@contextmanager
def collected_by_growth() -> Iterator[None]:
    """Replaces Python's collector, which counts objects, by one that looks at the memory and the open files of the process.

    A rollout makes records by the ten thousand and no cycles worth a pause. A world may leave cycles, though, few and large, or
    with files in them.
    """
    give_back()
    if not gc.isenabled():
        yield
        return
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(over, resident(), _num_files()), name="collector", daemon=True)
    gc.disable()
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        gc.enable()


def _watch(over: threading.Event, before: int, files_before: int) -> None:
    most_files = _MOST_FILES * resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    while not over.wait(_LOOK_S):
        try:
            grown = resident() - before > max(_LEAST_GROWTH, _SHARE * before)
            grown = grown or _num_files() - files_before > most_files
        except OSError:  # no descriptor is left
            grown = True
        if grown:
            gc.collect()
            with contextlib.suppress(OSError):
                files_before = _num_files()  # at once: what is opened from here on counts as growth
            give_back(least=0)  # else garbage could fill it unseen
            with contextlib.suppress(OSError):
                before = resident()


def _num_files() -> int:
    """Open descriptors of the process; 0 where the system does not say."""
    return len(os.listdir(_FILES)) if _FILES.exists() else 0
