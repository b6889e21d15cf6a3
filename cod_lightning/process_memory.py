"""Memory of this process."""

import ctypes
import functools
import resource
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")
_LARGE = 2**31
"""Bytes of a process whose pieces of freed memory are worth the page faults of taking them again."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of `mallopt`, as malloc.h has them."""
_KEPT = 2**31 - 1
"""Most free bytes at the end of the heap; `mallopt` takes no more."""
_OWN_MAPPING = 2**30
"""Bytes from which a tensor is still mapped, and returned, by itself: weights of a large model."""


def resident() -> int:
    """Bytes of memory that the process holds; the most that it ever held where the system does not say."""
    if _STATM.exists():
        return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
    return most_resident()


def most_resident() -> int:
    """Bytes of memory that the process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def give_back(least: int = _LARGE) -> None:
    """Return freed memory to the system, where the C library (glibc) keeps it, if the process holds at least so many bytes.

    Micro-batches of unequal size leave gaps, which the next ones and an engine's cache of keys and values do not fit.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None and (not least or resident() >= least):
        trim(0)


@functools.cache
def keep_freed_memory() -> bool:
    """Keep what tensors on the CPU give back for those after them, as this process's own; False where the C library is not glibc of
    2.35 or newer.

    It returns what is free to the system as soon as it is a few megabytes, and the next operation asks for it again, page by page:
    of a small policy's update and rollout that is a tenth of the time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(_MMAP_THRESHOLD, _OWN_MAPPING) and mallopt(_TRIM_THRESHOLD, _KEPT))
