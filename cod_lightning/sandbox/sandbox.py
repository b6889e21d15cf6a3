"""The trainer's end of a sandbox."""

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cod_lightning.errors import GradingFailed
from cod_lightning.sandbox.template import HEADER

_LOG = logging.getLogger(__name__)
_START_S = 120.0
"""For the template to import what its jobs need."""
_SLACK_S = 30.0
"""For the template to answer, beyond the time of a job, on a machine that is busy."""
_TRIES = 2
"""A template that is gone is started again once for a job."""
_MOST_OUTPUT = 1_000_000
_START = (
    "import sys; sys.path.append(sys.argv[1]); from cod_lightning.sandbox.template import main; main(*sys.argv[1:])"
)
_ROOT = str(Path(__file__).parents[2])
_ALONE = {
    "PATH": os.defpath,
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_said: set[str] = set()


class Ended(NamedTuple):
    """What came of a job."""

    output: str
    """What it printed, up to 1,000,000 bytes."""
    complaint: str = ""
    """What went wrong, as the predicate of a sentence; empty where it ended by itself with exit code 0."""
    errors: str = ""
    """The end of what it wrote to standard error."""
    code: int = 0
    """Exit code, or minus the number of the signal that ended it."""


class Sandbox:
    """Runs each job in a process of its own, which is forked from a clean template and ends with the job.

    A job reads what was imported and Python's own files, and computes. It cannot write a file, start a process, open a connection,
    send a signal, or see another process; its memory, time and output are limited. So nothing that it does reaches the trainer or
    another job. On Linux this holds by a filter of system calls (x86-64, 64-bit ARM), and by namespaces or Landlock for what it can
    read. What the system does not give is said once in a warning.

    Args:
        entry: `module:function`; called in the template with the arguments, it returns what is called with each request (bytes) and
            prints the result.
        arguments: Of the function, as JSON has them.
        path: Where the template imports from; null: the standard library alone.
        time_s: Seconds for a job, both by the clock and of computing.
        memory_mb: MiB of addresses for a job, beyond those of the template.
    """

    def __init__(
        self,
        entry: str = "cod_lightning.sandbox.template:program",
        arguments: Sequence[Any] = (),
        path: Sequence[str] | None = None,
        time_s: float = 5.0,
        memory_mb: int = 512,
    ) -> None:
        self.entry, self.arguments, self.time_s, self.memory_mb = entry, tuple(arguments), time_s, memory_mb
        self.path = None if path is None else tuple(path)
        self._begin()

    def _begin(self) -> None:
        self._pid, self._lock, self._template = os.getpid(), threading.Lock(), None
        self._free = threading.BoundedSemaphore(os.cpu_count() or 1)

    def __reduce__(self) -> tuple[Any, ...]:
        """Processes stay where they are."""
        return Sandbox, (self.entry, self.arguments, self.path, self.time_s, self.memory_mb)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Sandbox":
        """Jobs share nothing, so a copy is itself."""
        return self

    def run(self, request: bytes, given: bytes = b"") -> Ended:
        """Run a job on this request, with this standard input; as many at a time as there are cores, and waiting does not count.

        Raises `GradingFailed` where the template cannot be started.
        """
        if self._pid != os.getpid():  # a forked child has a template of its own
            self._begin()
        with self._free:
            for _ in range(_TRIES):
                if (answer := self._asked(HEADER.pack(len(request), len(given)) + request + given)) is not None:
                    return self._ended(*answer)
        return Ended("", "ended its sandbox", code=-signal.SIGKILL)

    def _asked(self, job: bytes) -> tuple[dict[str, Any], bytes, bytes] | None:
        """What came of a job, its output and errors; None where the template ended, which is then started anew."""
        template = self._running()
        near, far = socket.socketpair()
        with near, contextlib.suppress(OSError, EOFError, ValueError):
            with far, self._lock:
                socket.send_fds(template.socket, [b"j"], [far.fileno()])
            near.settimeout(self.time_s + _SLACK_S)
            near.sendall(job)
            with near.makefile("rb") as file:
                said, printed = HEADER.unpack(file.read(HEADER.size).ljust(HEADER.size, b"\0"))
                return json.loads(file.read(said)), file.read(printed), file.read()
        with self._lock:
            if self._template is template:
                template.end()
                self._template = None
        return None

    def _running(self) -> "_Template":
        with self._lock:
            if self._template is None:
                self._template = _Template(self)
            return self._template

    def _ended(self, said: dict[str, Any], printed: bytes, errors: bytes) -> Ended:
        output, shown = printed.decode("utf-8", "replace"), errors.decode("utf-8", "replace")
        code, complaint = said["code"], ""
        if said["ended"] == "time" or code == -signal.SIGXCPU:
            complaint = f"took longer than {self.time_s:g} s"
        elif said["ended"] == "output":
            complaint = f"printed more than {_MOST_OUTPUT:,} bytes"
        elif code:
            complaint = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return Ended(output, complaint, shown, code)


class _Template:
    """A template's process and the socket to it."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.socket, far = socket.socketpair()
        with far, tempfile.TemporaryDirectory(prefix="cod_lightning_root_") as empty:
            options = {
                "entry": sandbox.entry,
                "arguments": sandbox.arguments,
                "path": sandbox.path,
                "empty": empty,
                "memory_bytes": sandbox.memory_mb * 2**20,
                "time_s": sandbox.time_s,
                "most_output": _MOST_OUTPUT,
            }
            python = [sys.executable, "-s", "-S", "-P", "-B", "-X", "utf8", "-c", _START]
            self.process = subprocess.Popen(
                [*python, _ROOT, str(far.fileno()), json.dumps(options)],
                env=_ALONE,
                pass_fds=[far.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            far.close()
            self.end = weakref.finalize(self, _end, self.process, self.socket)
            self.socket.settimeout(_START_S)
            try:
                ready = json.loads(self.socket.recv(2**16) or b"{}")
            except (OSError, ValueError):
                ready = {}
        self.socket.settimeout(None)
        if "walls" not in ready:
            self.end()
            raise GradingFailed(ready.get("error", "the process of the sandbox ended, or did not start in time"))
        _say_what_is_missing(frozenset(ready["walls"]))


def _end(process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
    control.close()  # the template ends then
    process.kill()
    process.wait()


def _say_what_is_missing(walls: frozenset[str]) -> None:
    """Warn once of what this system does not keep from a policy's text."""
    missing = []
    if "filter" not in walls:
        missing.append("write files, start processes and open connections (this system has no filter of system calls)")
    if not walls & {"namespaces", "Landlock"}:
        missing.append(
            "read this user's files and see other processes (this system gives neither namespaces nor Landlock)"
        )
    for what in set(missing) - _said:
        _said.add(what)
        _LOG.warning(
            "Programs and answers of the policy are graded in processes that can %s. Train in a container.", what
        )
