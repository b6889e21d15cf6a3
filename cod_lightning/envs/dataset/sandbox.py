"""Runs a foreign Python program with limits of time, memory, output, files and, where the system has namespaces, no network.

This is no jail: the program runs as the user who trains, and can read and change that user's files. Train on programs in a
container.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cod_lightning.envs.answers import quoted
from cod_lightning.envs.unchanging import Unchanging

_MOST_OUTPUT = 1_000_000
"""Bytes that a program may print; more is cut off, and the program ended."""
_MOST_FILE = 10_000_000
_MOST_FILES = 64
_NAMESPACES = ("--user", "--map-root-user", "--net", "--ipc", "--pid", "--fork", "--kill-child")
_LIMITED = """
import resource as r, sys
for which, most in zip((r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_FSIZE, r.RLIMIT_NOFILE, r.RLIMIT_CORE), (*map(int, sys.argv[1:]), 0)):
    hard = r.getrlimit(which)[1]
    most = most if hard == r.RLIM_INFINITY else min(most, hard)
    r.setrlimit(which, (most, most))
sys.argv[:] = ["program.py"]
exec(compile(open("program.py", encoding="utf-8").read(), "program.py", "exec"), {"__name__": "__main__"})
"""
"""What the new process runs first."""


class Ran(NamedTuple):
    """What came of a program."""

    output: str
    complaint: str = ""
    """What went wrong, as the predicate of a sentence; empty where it ended well."""


class Sandbox(Unchanging):
    """Runs programs.

    Args:
        time_s: Seconds for one, both by the clock and of computing.
        memory_mb: MiB of addresses for each of its processes.
    """

    def __init__(self, time_s: float, memory_mb: int) -> None:
        self.time_s, self.memory_mb = time_s, memory_mb

    def run(self, program: str, given: str) -> Ran:
        """Run a program that reads this text, in an empty folder, with an empty environment."""
        with tempfile.TemporaryDirectory(prefix="cod_lightning_program_", ignore_cleanup_errors=True) as folder:
            source = Path(folder, "program.py")
            source.write_text(program, encoding="utf-8", errors="replace")
            limits = (self.memory_mb * 2**20, int(self.time_s) + 1, _MOST_FILE, _MOST_FILES)
            process = subprocess.Popen(
                [*_isolated(), sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _LIMITED, *map(str, limits)],
                cwd=folder,
                env={"PATH": os.defpath},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            return self._watched(process, given.encode("utf-8", "replace"))

    def _watched(self, process: "subprocess.Popen[bytes]", given: bytes) -> Ran:
        expired = threading.Event()

        def end() -> None:
            expired.set()
            _kill(process)

        clock = threading.Timer(self.time_s, end)
        clock.start()
        found: dict[str, bytes] = {}
        threads = [
            threading.Thread(target=_feed, args=(process, given), daemon=True),
            threading.Thread(target=_read, args=(process, "stdout", found), daemon=True),
            threading.Thread(target=_read, args=(process, "stderr", found), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            code = process.wait()
        finally:
            clock.cancel()
            _kill(process)  # and what it has started
        for thread in threads:
            thread.join(1.0)
        output = found.get("stdout", b"").decode("utf-8", "replace")
        if expired.is_set() or code in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
            return Ran(output, f"took longer than {self.time_s:g} s")
        if len(found.get("stdout", b"")) > _MOST_OUTPUT:
            return Ran(output, f"printed more than {_MOST_OUTPUT:,} bytes")
        if code:
            said = found.get("stderr", b"").decode("utf-8", "replace").rstrip().rpartition("\n")[2]
            return Ran(output, f"raised {quoted(said)}" if said else f"ended with exit code {code}")
        return Ran(output)


def _feed(process: "subprocess.Popen[bytes]", given: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.write(given)
    with contextlib.suppress(OSError):
        process.stdin.close()


def _read(process: "subprocess.Popen[bytes]", stream: str, found: dict[str, bytes]) -> None:
    """Up to the bound, and then end the program."""
    pipe = getattr(process, stream)
    with contextlib.suppress(OSError, ValueError):
        found[stream] = pipe.read(_MOST_OUTPUT + 1)
        if len(found[stream]) > _MOST_OUTPUT:
            _kill(process)
        pipe.close()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)


@cache
def _isolated() -> tuple[str, ...]:
    """A command that runs another without network, whose processes all end with it; empty where the system allows none."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return ()
    command = (unshare, *_NAMESPACES)
    done = subprocess.run([*command, "true"], capture_output=True, check=False, timeout=30)
    return command if done.returncode == 0 else ()
