"""One process at a time in a folder, by a lock that the system frees when its holder ends, however that ends."""

import os
import socket
import tempfile
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
    check_folder(folder, key)
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
    except OSError as error:
        expected = f"a folder in which {LOCK} is a file, or nothing at all ({error.strerror})"
        raise ConfigError(key, folder, expected, "Remove it, or name another folder.") from error
    try:
        file.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
        yield
    finally:
        lock.release()


def check_folder(folder: Path, key: str) -> None:
    """Raise `ConfigError` unless the folder, the value of `key`, can be written, or made where it is missing."""
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not there.is_dir():
        expected = "a folder" if there == folder else f"a folder, and {there} is a file"
        raise ConfigError(key, folder, expected, "Name another one.")
    try:
        tempfile.TemporaryDirectory(dir=there).cleanup()
    except OSError as error:
        expected = f"a folder that can be written ({error.strerror} in {there})"
        raise ConfigError(key, folder, expected, "Name another one.") from error


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
