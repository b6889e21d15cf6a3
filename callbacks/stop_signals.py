"""SIGTERM, SIGINT and Slurm's requeue signal: the run ends between two updates, where it can go on."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import lightning as L
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch.callbacks import Callback

from cod_lightning.callbacks.checkpoints import RunCheckpoint
from cod_lightning.callbacks.runner import find_runner, follow
from cod_lightning.errors import Stopped
from cod_lightning.ranks import gathered
from cod_lightning.rollout.runner import RolloutObserver

_ECHO_S = 0.1
"""A signal so soon after the first is the same one: `timeout` and some schedulers send it to a process and to its group."""


class StopSignals(Callback, RolloutObserver):
    """The first signal ends the run after the current optimizer update, with a checkpoint; a second one ends it at once.

    A rollout, a validation or a test that is under way is given up; the run that goes on does it again, with the same seeds. A
    rollout ahead is waited for, since the weights that play it are gone by then; not where weights change in flight.
    Ranks agree on the update at which they stop, whichever of them got the signal.

    Lightning's own handlers are replaced: they broadcast and save from within the handler, so in the middle of an update.
    """

    def __init__(self, checkpoint: RunCheckpoint | None = None, again: bool = False) -> None:
        """`checkpoint` saves; `again`: the same command goes on by itself."""
        self.checkpoint, self.again = checkpoint, again
        self.received = 0
        """Number of the signal that this rank or another one got; 0 where there was none."""
        self._at = 0.0
        """When this rank got one."""
        self._interruptible = True
        """Whether what happens now can be given up at once; until training begins there is nothing to finish."""
        self._exact = False
        """Whether the run can go on from between any two updates, and has begun to train."""
        self._in_rollout = False

    # ------------------------------------------------------------------ handlers

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._trainer, self._interruptible = trainer, True
        follow(trainer, self)
        self._handle()

    def _handle(self) -> None:
        """Set the handlers; Lightning sets its own between `setup` and the first batch."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT, self._requeue_signal()):
            if number is not None:
                signal.signal(number, self._signalled)

    def _signalled(self, number: int, frame: Any) -> None:
        if self._at:
            if time.monotonic() - self._at > _ECHO_S:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        self._at = time.monotonic()
        if self.received:  # another rank has decided so already
            return
        self.received = number
        name, when = signal.Signals(number).name, "now" if self._interruptible else "after this update"
        os.write(2, f"{name}: stopping {when}; once more stops at once\n".encode())
        if self._interruptible and (self._in_rollout or self._trainer.world_size == 1):
            raise Stopped(number)

    def _requeue_signal(self) -> signal.Signals | None:
        slurm = self._trainer._accelerator_connector.cluster_environment
        return slurm.requeue_signal if isinstance(slurm, SLURMEnvironment) and slurm.auto_requeue else None

    # ------------------------------------------------------------------ where a run may stop

    def update_begins(self) -> None:
        """The state of now can be saved and resumed exactly."""
        self.stop_if_asked()

    def stop_if_asked(self) -> None:
        """Raise `Stopped` if any rank got a signal. A collective: between updates, and around everything interruptible."""
        if asked := max(gathered(self.received)):  # a signal meanwhile stays for the next time
            self.received = asked
            raise Stopped(asked)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """A rank that gets a signal gives it up and waits at the end for the others."""
        self.stop_if_asked()
        before, self._interruptible, self._in_rollout = self._interruptible, True, True
        try:
            try:
                if self.received:  # a signal came while ranks agreed that there was none
                    raise Stopped(self.received)
                yield
            finally:
                self._interruptible, self._in_rollout = before, False
        except Stopped:
            pass  # not yet: the other ranks may be about to talk to this one
        self.stop_if_asked()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """From here on an update may be under way."""
        self._handle()
        self._exact = find_runner(trainer) is not None
        self._interruptible = not self._exact

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._interruptible = True

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Do not begin one that would be given up."""
        self._begin()

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The evaluation at the end of a fit is begun anew by the run that goes on."""
        self._begin()

    def _begin(self) -> None:
        self._handle()
        self.stop_if_asked()

    # ------------------------------------------------------------------ the end

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Save what was trained; then print how to go on, and have Slurm begin the job again if it asked for that."""
        if not isinstance(exception, Stopped):
            return
        if trainer.state.fn == "fit" and self._exact and self.checkpoint is not None and trainer.global_step > 0:
            self.checkpoint.save(trainer)
        exception.message = self._last_line(exception.number) if trainer.is_global_zero else ""
        if trainer.is_global_zero and exception.number == self._requeue_signal():
            _requeue()

    def _last_line(self, number: int) -> str:
        name, folder = signal.Signals(number).name, self.checkpoint and self.checkpoint.folder
        if not folder or not self._exact or not folder.newest_first():
            return f"Stopped by {name}. To go on: the same command again."
        how = "again" if self.again else f"with --ckpt_path {folder.last}"
        return f"Stopped by {name} after update {self._trainer.global_step}. To go on: the same command {how}"


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Leave the process's signal handlers as they were; Lightning puts back those that it found, which may be ours."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _requeue() -> None:
    """`scontrol requeue` for the job, or for the task of a job array, that this process belongs to.

    Slurm then ends the job with a SIGTERM, so whatever is to be kept has been saved before.
    """
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    job = os.environ["SLURM_JOB_ID"] if array is None else f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    try:
        done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True, check=False)
        answer = done.stderr.strip() if done.returncode else ""
    except OSError as error:
        answer = str(error)
    print(f"scontrol requeue {job}: {answer or 'done'}", file=sys.stderr, flush=True)
