"""Processes that a foreign program or world has started, found by their environment wherever they went, and ended with it."""

import os
import secrets
import signal
import time
from contextlib import suppress
from pathlib import Path

MARK = "COD_LIGHTNING_STARTED_BY"
"""Environment variable that a process inherits; one that takes it out is not found."""
_MOST_ROUNDS = 20
"""Looks that find one, since a process may start another one while it is looked for."""
_LONGEST_S, _PAUSE_S, _LOOKS = 2.0, 0.002, 5
"""A process in the middle of `exec` has neither an environment nor a command line yet, then one of them: how long and how often to
look at one without the first, and after how many looks what has the second is taken for one that has no environment."""
_PROC = Path("/proc")


def new_mark() -> str:
    """A value of `MARK`."""
    return f"{os.getpid()}.{secrets.token_hex(8)}"


def end_marked(mark: str) -> None:
    """SIGKILL to all processes with this mark but the present one; nothing where the system has no /proc."""
    wanted, late, rounds, looks = f"{MARK}={mark}".encode(), time.monotonic() + _LONGEST_S, 0, 0
    while rounds < _MOST_ROUNDS:
        found = begins = False
        looks += 1
        for process in _PROC.glob("[0-9]*"):
            pid = int(process.name)
            with suppress(OSError):
                environment = (process / "environ").read_bytes()
                if pid != os.getpid() and wanted in environment.split(b"\0"):
                    os.kill(pid, signal.SIGKILL)
                    found = True
                elif not environment and (looks < _LOOKS or not (process / "cmdline").read_bytes()):
                    begins = bool(os.readlink(process / "exe")) or begins  # threads of the kernel have none
        if not found and (not begins or time.monotonic() > late):
            return
        rounds += found
        time.sleep(0 if found else _PAUSE_S)
