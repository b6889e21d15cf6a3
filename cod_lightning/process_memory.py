"""Memory of this process."""

import ctypes
import resource
import sys
from pathlib import Path

_STATM = Path("/proc/self/statm")
_LARGE = 2**31
"""Bytes of a process whose pieces of freed memory are worth the page faults of taking them again."""


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
