"""Ends a process whose rollout no longer moves: stacks of all threads, who hangs, and an exit code of its own."""

import faulthandler
import os
import threading
from pathlib import Path
from types import TracebackType

from cod_lightning.rollout.liveness import Liveness

EXIT_STALLED = 70
"""Exit code of a run that stalled; `--ckpt_path last` goes on from its last checkpoint."""
_LONGEST_TICK_S = 5.0
_STDERR = 2


class Watchdog:
    """A thread that looks at a liveness for as long as a `with` block lasts.

    An engine or a world that hangs in this process holds up the event loop, so that no deadline can be looked at; only another
    thread can tell. It counts its own ticks rather than the clock: a process that was stopped and continued has not hung.

    Args:
        liveness: What has to move.
        stall_s: For how long it may stand still; None: forever.
        file: Where the report goes, beside stderr.
        label: What is going on, for the report.
        remedy: How to go on after it, for the report.
    """

    def __init__(
        self,
        liveness: Liveness,
        stall_s: float | None,
        file: Path,
        label: str,
        remedy: str = "go on with --ckpt_path last",
    ) -> None:
        self.liveness, self.stall_s, self.file, self.label, self.remedy = liveness, stall_s, file, label, remedy
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rollout watchdog", daemon=True)

    def __enter__(self) -> "Watchdog":
        """Watch."""
        if self.stall_s is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Watch no more."""
        self._over.set()
        if self.stall_s is not None:
            self._thread.join()

    def _watch(self) -> None:
        assert self.stall_s is not None
        tick = min(_LONGEST_TICK_S, self.stall_s / 8)
        seen, still = self.liveness.beats, 0.0
        while not self._over.wait(tick):
            still = still + tick if self.liveness.beats == seen else 0.0
            seen = self.liveness.beats
            if still >= self.stall_s:
                self._give_up()

    def _give_up(self) -> None:
        lines = self.liveness.lines()
        text = "\n".join(
            [
                f"error: nothing has moved for {self.stall_s:g} s in {self.label} (data.deadlines.stall_s). Live episodes:",
                *(f"  {line}" for line in lines or ["none"]),
                f"Stacks of all threads follow, also in {self.file}. Exit code {EXIT_STALLED}; {self.remedy}.",
                "",
            ]
        )
        try:
            os.write(_STDERR, text.encode())
            faulthandler.dump_traceback(_STDERR, all_threads=True)
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("w") as file:
                file.write(text)
                file.flush()
                faulthandler.dump_traceback(file, all_threads=True)
        finally:
            os._exit(EXIT_STALLED)
