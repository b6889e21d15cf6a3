"""Processes that get a JSON object a line and answer with one: started on demand, kept for further tasks, killed where they hang.

Whatever else a process prints is left out; the end of what it says on its error stream is kept, for what is said where it fails.
"""

import contextlib
import json
import math
import os
import selectors
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from cod_lightning.errors import ConfigError, EnvironmentFailure, WorldDied, WorldHung

_MOST_BYTES = 16 * 2**20
"""Of all that a process prints in one task."""
_SHOWN = 600
"""Letters of the error stream's end that are shown."""
_END_S = 5.0


def check_seconds(timeout_s: float) -> None:
    """Raise `ConfigError` for a time that no task can take."""
    if not 0 < timeout_s < math.inf:
        raise ConfigError("data.env.timeout_s", timeout_s, "seconds above 0, and finite", "600 is the default.")


class LineProcess:
    """One process, and what it has printed."""

    def __init__(self, command: Sequence[str], variables: dict[str, str]) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `kill`)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=os.environ | variables,
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise EnvironmentFailure(f"{command[0]} could not be started: {error}") from error
        self._rest = b""

    def ask(self, line: dict[str, Any], fits: Callable[[dict[str, Any]], bool], seconds: float) -> dict[str, Any]:
        """The first object that fits. Raises `WorldHung` and `WorldDied`; the process is of no use then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        until, num_bytes = time.monotonic() + seconds, 0
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise WorldDied(f"its program does not read what it is asked{self._said()}") from None
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            while True:
                while b"\n" in self._rest:
                    text, _, self._rest = self._rest.partition(b"\n")
                    if (found := _object(text)) is not None and fits(found):
                        return found
                left = until - time.monotonic()
                if left <= 0 or not waiting.select(left):
                    raise WorldHung(f"its program gave no answer within {seconds:g} s{self._said()}")
                part = os.read(self._process.stdout.fileno(), 2**16)
                num_bytes += len(part)
                if num_bytes > _MOST_BYTES:
                    raise WorldDied(f"its program printed more than {_MOST_BYTES:,} bytes")
                if not part:
                    if (found := _object(self._rest)) is not None and fits(found):
                        self._rest = b""
                        return found
                    raise WorldDied(f"its program ended without an answer{self._said(wait=True)}")
                self._rest += part

    @property
    def lives(self) -> bool:
        """Whether it is there."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it, and all that it has started; another thread that waits for it gets `WorldDied`."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill it and release what it holds."""
        self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        self._process.wait()

    def _said(self, *, wait: bool = False) -> str:
        """The end of its error stream, and its exit code."""
        code = None
        if wait:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(_END_S)
        with contextlib.suppress(OSError, ValueError):
            size = self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(0, size - _SHOWN))
            end = " ".join(self._errors.read().decode("utf-8", "replace").split())
            return f"{'' if code is None else f' (exit code {code})'}{f': ...{end}' if end else ''}"
        return ""


class LinePool:
    """At most so many processes of one command; copies of a world share them.

    Args:
        command: What is run.
        most: Processes at a time; a task that finds none free waits.
        reads_on: Whether a process can be asked again after an answer; else it is ended.
    """

    def __init__(self, command: Sequence[str], most: int, reads_on: bool) -> None:
        self.command, self.most, self.reads_on = tuple(command), most, reads_on
        self._begin()

    def __deepcopy__(self, memo: object) -> "LinePool":
        return self

    def __reduce__(self) -> tuple[type, tuple[Sequence[str], int, bool]]:
        """Processes stay where they are."""
        return LinePool, (self.command, self.most, self.reads_on)

    def _begin(self) -> None:
        self._pid, self._free, self._idle = os.getpid(), threading.BoundedSemaphore(self.most), list[LineProcess]()
        self._all = set[LineProcess]()
        weakref.finalize(self, _close_all, self._all, self._pid)

    def ask(
        self,
        line: dict[str, Any],
        fits: Callable[[dict[str, Any]], bool],
        seconds: float,
        variables: dict[str, str],
        asked: "Asked",
    ) -> dict[str, Any]:
        """The answer of one process. Raises `EnvironmentFailure`.

        Args:
            line: What it is asked.
            fits: Whether an object that it prints is the answer.
            seconds: For the answer; waiting for a free process does not count.
            variables: Of the environment of a process that is started for it.
            asked: Through which it can be called off.
        """
        if self._pid != os.getpid():  # a forked child has processes of its own
            self._begin()
        with self._free:
            process = self._taken()
            if process is None:
                process = LineProcess(self.command, variables)
                self._all.add(process)
            healthy = False
            try:
                asked.begin(process)
                found = process.ask(line, fits, seconds)
                healthy = self.reads_on and not asked.end() and process.lives
                return found
            finally:
                asked.end()
                if healthy:
                    self._idle.append(process)
                else:
                    self._all.discard(process)
                    process.close()

    def _taken(self) -> LineProcess | None:
        """One that waits; those that have ended are released."""
        while self._idle:
            process = self._idle.pop()
            if process.lives:
                return process
            self._all.discard(process)
            process.close()
        return None


class Asked:
    """One question, which another thread can call off."""

    def __init__(self) -> None:
        self._lock, self._off = threading.Lock(), False
        self._process: LineProcess | None = None

    def __deepcopy__(self, memo: object) -> "Asked":
        """A copy of a world asks for itself."""
        return Asked()

    def begin(self, process: LineProcess) -> None:
        """Note who is asked. Raises `WorldHung` where it was called off before."""
        with self._lock:
            self._process = process
            if self._off:
                raise WorldHung("it was called off")

    def end(self) -> bool:
        """From here on nothing is killed; whether it was called off."""
        with self._lock:
            self._process = None
            return self._off

    def call_off(self) -> None:
        """Kill who is asked."""
        with self._lock:
            self._off = True
            if self._process is not None:
                self._process.kill()


def _object(text: bytes) -> dict[str, Any] | None:
    """The JSON object that a line is; None where it is none."""
    if not text.lstrip().startswith(b"{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _close_all(processes: set[LineProcess], owner: int) -> None:
    if os.getpid() == owner:
        for process in list(processes):
            process.close()
