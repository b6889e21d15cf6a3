"""Processes that get a JSON object a line and answer with one, killed where they hang.

Whatever else a process prints, before its answer or after it, is left out; the end of what it says on its error stream is kept, for
what is said where it fails.
"""

import json
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from cod_lightning.envs.apart import command as apart
from cod_lightning.envs.apart import variables as given_variables
from cod_lightning.envs.foreign_process import ForeignProcess
from cod_lightning.envs.process_pool import PendingCall, ProcessPool
from cod_lightning.errors import EnvironmentFailure, WorldDied, WorldHung

_MOST_BYTES = 16 * 2**20
"""Of all that a process prints in one task, on both streams."""
_PART = 2**16
"""Bytes that are read at once, as many as a pipe holds."""
_SHOWN = 600
"""Letters of the error stream's end that are shown."""
_END_S = 5.0


class LineProcess(ForeignProcess):
    """One process, apart from all others, and what it has printed.

    Args:
        command: What is run.
        variables: Names of variables of this process's environment that it gets beyond paths, language and threads.
        reads_on: Whether it can be asked again after an answer.
    """

    def __init__(self, command: Sequence[str], variables: Sequence[str], reads_on: bool = False) -> None:
        self.reads_on, pipe = reads_on, subprocess.PIPE
        try:
            super().__init__(
                apart(command), given_variables(variables), bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe
            )
        except OSError as error:
            raise EnvironmentFailure(f"{command[0]} could not be started: {error}") from error
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._in, self._out, self._errors = self.process.stdin, self.process.stdout, self.process.stderr
        for stream in (self._in, self._out, self._errors):
            os.set_blocking(stream.fileno(), False)
        self._end = b""
        """Of the error stream."""

    def ask(self, line: dict[str, Any], fits: Callable[[dict[str, Any]], bool], seconds: float) -> dict[str, Any]:
        """The first object that fits. Raises `WorldHung` and `WorldDied`; the process is of no use then.

        What it printed before it was asked answers no question, and is left out.
        """
        until, num_bytes, rest = time.monotonic() + seconds, 0, bytearray()
        given = memoryview(json.dumps(line).encode() + b"\n")
        for _ in range(_MOST_BYTES // _PART):
            if not self._read(self._out):
                break
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._in, selectors.EVENT_WRITE)
            waiting.register(self._out, selectors.EVENT_READ)
            waiting.register(self._errors, selectors.EVENT_READ)
            while True:
                left = until - time.monotonic()
                ready = {key.fileobj for key, _ in waiting.select(left)} if left > 0 else set()
                if not ready:
                    raise WorldHung(f"its program gave no answer within {seconds:g} s{self._said()}")
                if self._in in ready:
                    given = given[self._write(given) :]
                    if not given:
                        waiting.unregister(self._in)
                if self._errors in ready:
                    said = self._read(self._errors)
                    self._end = (self._end + (said or b""))[-_SHOWN:]
                    num_bytes += len(said or b"")
                    if said == b"":
                        waiting.unregister(self._errors)
                if self._out in ready and (part := self._read(self._out)) is not None:
                    num_bytes += len(part)
                    rest += part
                    if b"\n" in part or not part:  # a long line is joined once, not at every part
                        *lines, rest = rest.split(b"\n")
                        for text in lines if part else [rest]:
                            if (found := _object(text)) is not None and fits(found):
                                # else the next line would be the end of this one
                                self.reads_on = self.reads_on and not given
                                return found
                    if not part:
                        raise WorldDied(f"its program ended without an answer{self._said(wait=True)}")
                if num_bytes > _MOST_BYTES:
                    raise WorldDied(f"its program printed more than {_MOST_BYTES:,} bytes")

    def _said(self, *, wait: bool = False) -> str:
        """The end of its error stream, and its exit code."""
        code = None
        if wait:
            code = self.code(_END_S)
            self._end = (self._end + (self._read(self._errors) or b""))[-_SHOWN:]
        end = " ".join(self._end.decode("utf-8", "replace").split())
        return f"{'' if code is None else f' (exit code {code})'}{f': ...{end}' if end else ''}"

    def _write(self, given: memoryview) -> int:
        """Bytes that it takes now; all of them where it reads no more: what it prints, or how it ends, says what came of it."""
        try:
            return os.write(self._in.fileno(), given[:_PART])
        except BlockingIOError:
            return 0
        except (OSError, ValueError):
            return len(given)

    @staticmethod
    def _read(stream: IO[bytes]) -> bytes | None:
        """What is there; empty at the end of the stream, None where nothing is there yet."""
        try:
            return os.read(stream.fileno(), _PART)
        except BlockingIOError:
            return None
        except (OSError, ValueError):
            return b""


class LinePool(ProcessPool[LineProcess]):
    """Processes of one command.

    Args:
        command: What is run.
        most: Processes at a time.
        reads_on: Whether a process can be asked again after an answer; else it is ended.
        variables: As of `LineProcess`.
    """

    def __init__(self, command: Sequence[str], most: int, reads_on: bool, variables: Sequence[str] = ()) -> None:
        super().__init__(most)
        self.command, self.reads_on, self.variables = tuple(command), reads_on, tuple(variables)

    def start(self) -> LineProcess:
        return LineProcess(self.command, self.variables, self.reads_on)

    def ask(
        self,
        line: dict[str, Any],
        fits: Callable[[dict[str, Any]], bool],
        seconds: float,
        pending: PendingCall,
    ) -> dict[str, Any]:
        """The answer of one process. Raises `EnvironmentFailure`.

        Args:
            line: What it is asked.
            fits: Whether an object that it prints is the answer.
            seconds: For the answer; waiting for a free process does not count.
            pending: Through which it can be called off.
        """
        with self.one(pending) as process:
            return process.ask(line, fits, seconds)


def _object(text: bytes | bytearray) -> dict[str, Any] | None:
    """The JSON object that a line is; None where it is none."""
    if not text.lstrip().startswith(b"{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
