"""Processes that make a training step on a command, so that all that are compared see the same machine."""

import json
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WARM_UP = 1
"""First turns of each that do not count."""


@dataclass
class Worker:
    """A process that makes one step on a command."""

    process: "subprocess.Popen[str] | None"
    failure: str = ""
    """Why it makes no more steps; empty while it does."""

    @classmethod
    def start(cls, command: list[str], log: Path) -> "Worker":
        """Its errors go to the log. A command that cannot be run makes a worker that has failed already."""
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        try:
            return cls(subprocess.Popen(command, stderr=log.open("w"), **pipes))
        except OSError as error:
            return cls(None, f"did not start: {error}")

    def step(self) -> dict[str, float] | None:
        """Where the time went; None from one that has ended, with the reason in `failure`."""
        if self.process is None or not self._read() or self.process.stdin is None:
            return None
        with suppress(BrokenPipeError):  # of one that was killed; reading says so
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        return self._read()

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def _read(self) -> dict[str, Any] | None:
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self.failure = f"ended with {self.process.wait()}"
        return None


def in_turn(
    workers: Mapping[str, Worker], repeats: int, fewer: Mapping[str, int] | None = None, *, long: bool = False
) -> dict[str, list[dict[str, float]]]:
    """Where the time of each one's steps went; nothing more of one that has ended, and says so in `failure`.

    One with so few repeats in `fewer` takes part in the first ones.

    Of two steps in a row the second counts, since in a training a step follows another: the first finds another's data in the
    processor's caches. Long steps, to whose time that adds nothing, are made once.
    """
    steps: dict[str, list[dict[str, float]]] = {name: [] for name in workers}
    try:
        for repeat in range(WARM_UP + repeats):
            for name, worker in workers.items():
                if repeat >= WARM_UP + (fewer or {}).get(name, repeats):
                    continue
                if not worker.failure and (long or worker.step()) and (found := worker.step()) and repeat >= WARM_UP:
                    steps[name].append(found)
    finally:
        for worker in workers.values():
            worker.end()
    return steps
