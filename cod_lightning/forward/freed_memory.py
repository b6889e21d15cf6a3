"""Memory that tensors on the CPU give back is kept for the tensors after them.

glibc returns what is free to the operating system as soon as it is a few megabytes, and the next operation asks for it again, page
by page: of a small policy's update and rollout that is a tenth of the time. Kept, it counts as the process's own until it ends.
"""

import ctypes
import functools

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of `mallopt`, as malloc.h has them."""
_KEPT = 2**31 - 1
"""Most free bytes at the end of the heap; `mallopt` takes no more."""
_OWN_MAPPING = 2**30
"""Bytes from which a tensor is still mapped, and returned, by itself: weights of a large model."""
_OLD_OWN_MAPPING = 2**25
"""The most that glibc before 2.35 takes for it."""


@functools.cache
def keep_freed_memory() -> bool:
    """From here on in this process; False where the C library has no such switch (macOS, musl)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    mapped = mallopt(_MMAP_THRESHOLD, _OWN_MAPPING) or mallopt(_MMAP_THRESHOLD, _OLD_OWN_MAPPING)
    return bool(mapped and mallopt(_TRIM_THRESHOLD, _KEPT))
