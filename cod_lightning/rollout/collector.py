"""Garbage collection during a rollout: none for its tens of thousands of records, one whenever the process has grown."""

import ctypes
import gc
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOOK_S = 0.05
_LEAST_GROWTH, _SHARE = 2**27, 0.25
"""Bytes, and share of what the process held after the last collection, by which it grows before the next one."""
_STATM = Path("/proc/self/statm")


@contextmanager
def collected_by_growth() -> Iterator[None]:
    """Replaces Python's collector, which counts objects, by one that looks at the memory of the process.

    A rollout makes records by the ten thousand and no cycles worth a pause. A world may leave cycles, though, few and large.
    """
    if not gc.isenabled():
        yield
        return
    over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(over,), name="collector", daemon=True)
    gc.disable()
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        gc.enable()


def _watch(over: threading.Event) -> None:
    before = resident()
    while not over.wait(_LOOK_S):
        if resident() - before > max(_LEAST_GROWTH, _SHARE * before):
            gc.collect()
            _return_freed()
            before = resident()


def _return_freed() -> None:
    """Give memory that is free back to the system, where the C library (glibc) keeps it: else garbage could fill it unseen."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def resident() -> int:
    """Bytes of memory that the process holds; the most that it ever held where the system does not say."""
    if _STATM.exists():
        return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
