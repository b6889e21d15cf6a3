"""A live display of a run that never looks frozen: rollouts, the long part, show every lifecycle that ends."""

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import lightning as L
from lightning.pytorch.callbacks.progress.progress_bar import ProgressBar
from lightning.pytorch.trainer.states import TrainerFn
from rich.console import Console, RenderableType
from rich.console import Group as Lines
from rich.live import Live
from rich.progress_bar import ProgressBar as Bar
from rich.table import Table
from rich.text import Text

from cod_lightning.callbacks.runner import find_runner
from cod_lightning.evaluation.metrics import by_position
from cod_lightning.objective.batch import Batch
from cod_lightning.rollout.runner import RolloutObserver
from cod_lightning.terminal import Screen
from cod_lightning.types import Episode, EpisodeKind, Lifecycle

_BAR_WIDTH = 24


@dataclass(slots=True)
class Tally:
    """How far a rollout has come."""

    label: str
    num_lifecycles: int
    num_tasks: int
    finished: int = 0
    failed: int = 0
    played: int = 0
    """Solve episodes that have ended, those of lifecycles under way included."""
    solved: list[int] = field(init=False)
    """[N] successes by position, of lifecycles that have ended: the same ones at every position, or short ones would count more."""
    tried: list[int] = field(init=False)
    """[N] solve episodes of theirs that have an outcome."""
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None

    def __post_init__(self) -> None:
        self.solved, self.tried = [0] * self.num_tasks, [0] * self.num_tasks

    def count(self, lifecycle: Lifecycle) -> None:
        """Add one lifecycle that has ended; solve episodes without an outcome count for nothing."""
        self.finished += 1
        self.failed += lifecycle.failed
        for episode in lifecycle.solves:
            if (
                episode.success is not None and episode.position < self.num_tasks
            ):  # a program may solve tasks more than once
                self.tried[episode.position] += 1
                self.solved[episode.position] += episode.success

    @property
    def success(self) -> list[float | None]:
        """[N] share solved so far; None where no lifecycle has ended."""
        return [solved / tried if tried else None for solved, tried in zip(self.solved, self.tried, strict=True)]

    @property
    def seconds(self) -> float:
        """Since it began, up to its end."""
        return (time.monotonic() if self.ended is None else self.ended) - self.began


@dataclass(slots=True)
class Board:
    """Everything on display."""

    stage: str
    unit: str
    total: int | None
    """Of `unit`; None where the run has no end in sight."""
    done: int = 0
    first: int = 0
    """`done` when the clock started: not 0 in a resumed run."""
    began: float = field(default_factory=time.monotonic)
    tally: Tally | None = None
    train: str = ""
    """Latest training metrics."""
    validation: str = ""
    """Latest validation metrics."""

    def render(self) -> RenderableType:
        """Two bars, the success by position of the rollout that runs, and the latest metrics."""
        bars, lines = Table.grid(padding=(0, 1)), Table.grid(padding=(0, 1))
        bars.add_row(_label(self.stage), _bar(self.done, self.total), f"{self.progress()}  {self.clock()}")
        if self.tally is not None:
            tally = self.tally
            text = Text(f"{tally.finished:,}/{tally.num_lifecycles:,} lifecycles  {clock(tally.seconds)}")
            text.append(f"  {tally.failed:,} failed" if tally.failed else "", style="red")
            bars.add_row(_label("rollout"), _bar(tally.finished, tally.num_lifecycles), text)
            lines.add_row(_label("playing"), tally.label)
            lines.add_row(_label("success"), success_text(tally.success))
        for name, text in (("train", self.train), ("validation", self.validation)):
            if text:
                lines.add_row(_label(name), text)
        return Lines(bars, lines)

    def progress(self) -> str:
        """`120/480 updates`."""
        return f"{self.done:,}{'' if self.total is None else f'/{self.total:,}'} {self.unit}"

    def clock(self) -> str:
        """Time spent and, by the mean pace so far, time left."""
        spent, passed = time.monotonic() - self.began, self.done - self.first
        if self.total is None or passed <= 0:
            return clock(spent)
        return f"{clock(spent)}, {clock(spent / passed * max(0, self.total - self.done))} left"


def train_summary(metrics: Mapping[str, Any]) -> str:
    """Reward by position, log-prob gap, staleness and entropy of the latest update; for a warm start its loss."""
    rewards = by_position(metrics, "train/reward/position_")
    parts = [f"reward {' '.join(map(_short, rewards))}"] if rewards else []
    for name, key, form in (
        ("log-prob gap", "train/logprob_gap", ".1e"),
        ("entropy", "train/entropy", ".3f"),
        ("loss", "warm_start/loss", ".4f"),
    ):
        if key in metrics:
            parts.append(f"{name} {float(metrics[key]):{form}}")
    if lag := float(metrics.get("train/staleness", 0)):
        parts.append(f"staleness {lag:g}")
    return "  ".join(parts)


def validation_summary(metrics: Mapping[str, Any]) -> str:
    """Success by position and its gain."""
    success = by_position(metrics, "val/success/position_")
    gain = f"  gain {float(metrics['val/cod_gain']):+.2f}" if "val/cod_gain" in metrics else ""
    return f"success {' '.join(map(_short, success))}{gain}" if success else ""


def success_text(success: list[float | None]) -> str:
    """`pos0 .52  pos1 .81`; a dash where nothing has ended yet."""
    return "  ".join(f"pos{position} {_short(value)}" for position, value in enumerate(success))


def clock(seconds: float) -> str:
    """`0:07`, `12:34`, `1:02:03`.

    >>> clock(7.2), clock(754), clock(3723)
    ('0:07', '12:34', '1:02:03')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _label(name: str) -> Text:
    return Text(f"{name:<10}", style="dim")


def _bar(done: int, total: int | None) -> Bar:
    return Bar(total=total or None, completed=done, width=_BAR_WIDTH, pulse=total is None)


def _short(value: float | None) -> str:
    """Two decimals; no 0 before the point."""
    return " - " if value is None else re.sub(r"^(-?)0(?=\.)", r"\1", f"{value:.2f}")


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
