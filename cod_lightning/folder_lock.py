"""One process at a time in a folder, by a lock that the system frees when its holder ends, however that ends."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from cod_lightning.errors import ConfigError

LOCK = ".lock"
"""File in the folder; it stays, and names its last holder."""
_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")
"""Environment variables by which launchers number the processes of one run."""


@contextmanager
def locked(folder: Path, key: str, what: str) -> Iterator[None]:
    """Hold the folder, the value of `key`; `ConfigError` where another process does. Of several ranks only the first holds it.

    Args:
        what: What runs there alone, as in `fit`.
    """
    if _later_rank():
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / LOCK
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        holder = ""
        with suppress(OSError):
            holder = file.read_text(encoding="utf-8", errors="replace").strip()
        expected = f"a folder in which no other {what} runs ({holder or 'another process'} holds it)"
        raise ConfigError(key, folder, expected, "Wait until it has ended, or name another folder.") from error
    try:
        file.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
        yield
    finally:
        lock.release()


def held(folder: Path) -> bool:
    """Whether another process holds the folder; ranks above the first do not ask."""
    if _later_rank() or not (folder / LOCK).exists():
        return False
    try:
        with FileLock(folder / LOCK, timeout=0):
            return False
    except Timeout:
        return True


def _later_rank() -> bool:
    return any(os.environ.get(name, "0") not in ("", "0") for name in _RANKS)
