"""Processes that a foreign program or world has started, found by their environment wherever they went, and ended with it."""

import os
import secrets
import signal
from contextlib import suppress
from pathlib import Path

MARK = "COD_LIGHTNING_STARTED_BY"
"""Environment variable that a process inherits; one that takes it out is not found."""
_MOST_ROUNDS = 20
"""Looks, since a process may start another one while it is looked for."""


def new_mark() -> str:
    """A value of `MARK`."""
    return f"{os.getpid()}.{secrets.token_hex(8)}"


def end_marked(mark: str) -> None:
    """SIGKILL to all processes with this mark but the present one; nothing where the system has no /proc."""
    wanted = f"{MARK}={mark}".encode()
    for _ in range(_MOST_ROUNDS):
        found = False
        for path in Path("/proc").glob("[0-9]*/environ"):
            pid = int(path.parent.name)
            with suppress(OSError):
                if pid != os.getpid() and wanted in path.read_bytes().split(b"\0"):
                    os.kill(pid, signal.SIGKILL)
                    found = True
        if not found:
            return
