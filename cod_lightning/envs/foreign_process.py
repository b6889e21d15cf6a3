"""A process that runs a foreign program or world, and what it has started, found by the environment wherever that went."""

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

MARK = "COD_LIGHTNING_STARTED_BY"
"""Environment variable that a process inherits; one that takes it out is not found."""
_MOST_ROUNDS = 20
"""Looks that find one, since a process may start another one while it is looked for."""
_LONGEST_S, _PAUSE_S, _LOOKS = 2.0, 0.002, 5
"""A process in the middle of `exec` has neither an environment nor a command line yet, then one of them: how long and how often to
look at one without the first, and after how many looks what has the second is taken for one that has no environment."""
_PROC = Path("/proc")
_END_S = 10.0
"""For a process that was killed to be gone."""


class ForeignProcess:
    """A process that leads a session of its own; it and whatever it has started end together.

    Args:
        command: What is run.
        variables: Its environment.
        streams: Further parameters of `subprocess.Popen`.
    """

    reads_on = True
    """Whether it can be asked again."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], **streams: Any) -> None:
        self._mark = f"{os.getpid()}.{secrets.token_hex(8)}"
        variables = {**variables, MARK: self._mark}
        self.process: subprocess.Popen[Any] = subprocess.Popen(
            command, env=variables, start_new_session=True, **streams
        )

    @property
    def lasts(self) -> bool:
        """Whether it can serve another call."""
        return self.reads_on and self.process.poll() is None

    def kill(self) -> None:
        """End it, and all that it has started; another thread that waits for its answer gets `WorldDied`."""
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill it and release what it holds; what it has started in a session of its own ends too."""
        self.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self.code(_END_S)  # the system cannot end what waits for a disk or a driver
        end_marked(self._mark)

    def code(self, seconds: float) -> int | None:
        """Its exit code, as soon as it has ended; None where it goes on."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(seconds)
        return None


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
