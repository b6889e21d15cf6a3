"""A live display of a run that never looks frozen: rollouts, the long part, show every lifecycle that ends."""

import math
import time
from typing import Any

import lightning as L
from lightning.pytorch.callbacks.progress.progress_bar import ProgressBar
from lightning.pytorch.trainer.states import TrainerFn
from rich.console import Console
from rich.live import Live

from cod_lightning.callbacks.board import Board, Tally, clock, success_text, train_summary, validation_summary
from cod_lightning.callbacks.runner import find_runner
from cod_lightning.objective.batch import Batch
from cod_lightning.rollout.runner import RolloutObserver
from cod_lightning.terminal import Screen
from cod_lightning.types import Episode, EpisodeKind, Lifecycle

_SNAPSHOT_S = 0.2
"""Seconds between two looks at the Trainer's metrics, which cost more than a count."""


class Progress(ProgressBar, RolloutObserver):
    """Takes the place of Lightning's own bar, and watches the DataModule's rollouts.

    A lifecycle that ends only raises counts; a thread of its own draws them. Where the output is no terminal (a log file, CI)
    it prints one plain line for each epoch, validation and test condition instead, and in between how far a rollout or an update
    has come.

    Args:
        refresh_per_second: How often the display is drawn.
        line_every_s: Seconds between two lines of a log while neither an epoch nor a rollout ends.
    """

    def __init__(self, refresh_per_second: float = 4.0, line_every_s: float = 30.0) -> None:
        super().__init__()
        self.refresh_per_second, self.line_every_s = refresh_per_second, line_every_s
        self.console: Console | None = None
        """Where it shows; made in `setup`, unless it was set before."""
        self.board: Board | None = None
        self._live: Live | None = None
        self._enabled = True
        self._snapshot_at = 0.0
        self._said_at = 0.0
        self._update_began, self._rows_done, self._num_rows = 0.0, 0, 0

    # ------------------------------------------------------------------ life

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self.console = self.console or Screen()
        runner = find_runner(trainer)
        if self._enabled and runner is not None:
            runner.follow(self)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self._stop()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Give the terminal back before a traceback is printed."""
        self._stop()

    def disable(self) -> None:
        """Show nothing (Lightning asks for it on ranks above 0)."""
        self._enabled = False
        self._stop()

    def enable(self) -> None:
        self._enabled = True

    def print(self, *args: Any, sep: str = " ", **kwargs: Any) -> None:
        if self.console is not None:
            self.console.print(sep.join(map(str, args)), soft_wrap=True)

    # ------------------------------------------------------------------ training

    def on_sanity_check_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """The first rollout of a fit is on display already."""
        self._start(Board("fit", "updates", _total_updates(trainer)))

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        done = _updates_done(trainer)
        self._start(Board("fit", "updates", _total_updates(trainer), done=done, first=done))
        if self._enabled and hasattr(pl_module, "add_row_listener"):  # a warm start's has none
            pl_module.add_row_listener(self._rows_trained)  # pyright: ignore

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._update_began, self._rows_done, self._num_rows = time.monotonic(), 0, len(batch)

    def _rows_trained(self, part: Batch, _: Any) -> None:
        """A micro-batch has gone forward and backward. Rows without an advantage are left out, so that an update may end early."""
        self._rows_done += len(part)
        self._pulse("training", _so_far(self._rows_done, self._num_rows, "rows", self._update_began))

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.board is None:
            return
        self.board.done = _updates_done(trainer)
        now = time.monotonic()
        if trainer.is_last_batch or now - self._snapshot_at > _SNAPSHOT_S:
            self._snapshot_at = now
            self.board.train = train_summary(trainer.callback_metrics)
        self._pulse("train", self.board.train)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.board is not None:
            self._plain("train", self.board.train)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._enabled and hasattr(pl_module, "remove_row_listener"):
            pl_module.remove_row_listener(self._rows_trained)  # pyright: ignore
        self._stop()

    # ------------------------------------------------------------------ validation and test

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Of `validate`; the validations of a fit are part of its display."""
        if trainer.state.fn == TrainerFn.VALIDATING:
            self._start(Board("validate", "batches", int(sum(trainer.num_val_batches))))

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.board is not None and not trainer.sanity_checking:
            self.board.validation = validation_summary(trainer.callback_metrics)
            self._plain("validation", self.board.validation)

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._start(Board("test", "conditions", int(sum(trainer.num_test_batches))))

    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if self.board is not None:
            self.board.done += 1
            if self.board.tally is not None:
                self._plain(self.board.tally.label, success_text(self.board.tally.success))

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._stop()

    def on_predict_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._start(Board("predict", "batches", int(sum(trainer.num_predict_batches))))

    # ------------------------------------------------------------------ rollouts

    def begin(self, label: str, num_lifecycles: int, num_tasks: int) -> None:
        if self.board is not None:
            self.board.tally = Tally(label, num_lifecycles, num_tasks)

    def episode(self, episode: Episode) -> None:
        if self.board is not None and (tally := self.board.tally) is not None and episode.kind is EpisodeKind.SOLVE:
            tally.played += 1
            total = tally.num_lifecycles * tally.num_tasks
            self._pulse(f"rollout {tally.label}", _so_far(tally.played, total, "tasks", tally.began))

    def lifecycle(self, lifecycle: Lifecycle) -> None:
        if self.board is not None and self.board.tally is not None:
            self.board.tally.count(lifecycle)

    def end(self) -> None:
        if self.board is not None and self.board.tally is not None:
            self.board.tally.ended = time.monotonic()

    # ------------------------------------------------------------------ display

    def _start(self, board: Board) -> None:
        if not self._enabled or self.console is None:
            return
        self.board, self._said_at = board, time.monotonic()
        if self._live is None and self.console.is_terminal and not self.console.is_dumb_terminal:
            shown = lambda: self.board.render() if self.board is not None else ""  # noqa: E731
            self._live = Live(get_renderable=shown, console=self.console, refresh_per_second=self.refresh_per_second)
            self._live.start(refresh=True)

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _plain(self, name: str, text: str) -> None:
        """One line of a log, where nothing is drawn."""
        if self.board is not None and self._live is None and text:
            self._said_at = time.monotonic()
            self.print(f"{self.board.progress()}  {self.board.clock()}  {name}: {text}")

    def _pulse(self, name: str, text: str) -> None:
        """One line of a log, unless there was one lately."""
        if time.monotonic() - self._said_at >= self.line_every_s:
            self._plain(name, text)


def _so_far(done: int, total: int, unit: str, began: float) -> str:
    """`12/128 tasks, 1:20 left` by the mean pace since it began."""
    left = (time.monotonic() - began) / max(1, done) * max(0, total - done)
    return f"{done:,}/{total:,} {unit}, {clock(left)} left"


def _updates_done(trainer: L.Trainer) -> int:
    return trainer.fit_loop.total_batch_idx + 1


def _total_updates(trainer: L.Trainer) -> int | None:
    """Updates at which the run ends, by `max_steps` or `max_epochs`; None if neither is set."""
    bounds = [float(trainer.max_steps)] if trainer.max_steps > 0 else []
    if trainer.max_epochs is not None and trainer.max_epochs > 0:
        bounds.append(trainer.max_epochs * float(trainer.num_training_batches))
    total = min(bounds, default=math.inf)
    return None if math.isinf(total) else int(total)
