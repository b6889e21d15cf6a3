"""A live display of a run that never looks frozen: rollouts, the long part, show every lifecycle that ends."""

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import lightning as L
from lightning.pytorch.callbacks.progress.progress_bar import ProgressBar
from lightning.pytorch.trainer.states import TrainerFn
from rich.console import Console, RenderableType
from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from cod_lightning.callbacks.runner import follow
from cod_lightning.evaluation.metrics import by_position
from cod_lightning.objective.batch import Batch
from cod_lightning.rollout.runner import RolloutObserver
from cod_lightning.terminal import Screen
from cod_lightning.types import Episode, EpisodeKind, Lifecycle

_LINE_EVERY_S = 30.0
"""Between two lines of a log while neither an epoch nor a rollout ends."""


class _Text(ProgressColumn):
    """How far a task is, and how many of its parts failed."""

    def render(self, task: Task) -> Text:
        failed = task.fields["failed"]
        return Text(so_far(task)).append(f"  {failed:,} failed" if failed else "", style="red")


class Display(Bars):
    """Bars of the run, of the rollout and of the update that is under way, and below them lines by name."""

    def __init__(self, console: Console) -> None:
        drawn = console.is_terminal and not console.is_dumb_terminal
        self.lines: dict[str, str] = {}
        self.bars: dict[str, TaskID] = {}
        columns = (TextColumn("{task.description:<10}", style="dim", markup=False), BarColumn(24), _Text())
        super().__init__(*columns, console=console, disable=not drawn, refresh_per_second=4)

    def begin(self, name: str, unit: str, total: int | None, done: int = 0) -> None:
        """Begin this bar, or begin it anew; `total` is None where it has no end in sight."""
        how: Any = {"total": total, "completed": done, "first": done, "unit": unit, "failed": 0}
        if name in self.bars:
            self.reset(self.bars[name], **how)
        else:
            self.bars[name] = self.add_task(name, **how)

    def so_far(self, name: str) -> str:
        """How far this bar is."""
        return so_far(next(one for one in self.tasks if one.id == self.bars[name]))

    def get_renderables(self) -> Iterator[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        lines = Table.grid(padding=(0, 1))
        for name, text in [*self.lines.items()]:  # another thread may add one
            lines.add_row(Text(f"{name:<10}", style="dim"), Text(text))
        yield lines


def so_far(task: Task) -> str:
    """`120/480 updates  0:02:00, 0:06:00 left`, by the mean pace since it began; a resumed run begins above 0."""
    done = f"{int(task.completed):,}" + ("" if task.total is None else f"/{int(task.total):,}")
    passed = task.completed - task.fields["first"]
    spent = task.elapsed or 0.0 if task.finished_time is None else task.finished_time
    to_do = 0.0 if task.total is None else max(0.0, task.total - task.completed)  # a program may solve more
    left = "" if task.total is None or passed <= 0 else f", {timedelta(seconds=int(spent / passed * to_do))} left"
    return f"{done} {task.fields['unit']}  {timedelta(seconds=int(spent))}{left}"


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


def success_text(outcomes: Sequence[Sequence[bool]]) -> str:
    """`pos0 .52  pos1 .81`, the share solved at each position; a dash where no lifecycle has ended."""
    shares = (sum(of) / len(of) if of else None for of in outcomes)
    return "  ".join(f"pos{position} {_short(share)}" for position, share in enumerate(shares))


def _short(value: float | None) -> str:
    """Two decimals; no 0 before the point."""
    return " - " if value is None else re.sub(r"^(-?)0(?=\.)", r"\1", f"{value:.2f}")


class Progress(ProgressBar, RolloutObserver):
    """Takes the place of Lightning's own bar, and watches the DataModule's rollouts.

    A lifecycle that ends only raises counts; a thread of its own draws them. Where the output is no terminal (a log file, CI)
    it prints one plain line for each epoch, validation and test condition instead, and in between how far a rollout or an update
    has come.

    Args:
        num_conditions: Counts what all passes of `test` play together, asked when the first begins; null: each pass counts its own.
    """

    def __init__(self, num_conditions: Callable[[], int] | None = None) -> None:
        super().__init__()
        self._num_conditions, self._conditions_done = num_conditions, 0
        self.console: Console | None = None
        """Where it shows; made in `setup`, unless it was set before."""
        self.display: Display | None = None
        self._label, self._failed = "", 0
        """Of the rollout that was begun last."""
        self._outcomes: list[list[bool]] = []
        """[N] of its lifecycles that have ended: the same ones at every position, or short ones would count more."""
        self._enabled = True
        self._said_at = 0.0
        self._name = ""
        """Of the run's bar."""

    # ------------------------------------------------------------------ life

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self.console = self.console or Screen()
        if self._enabled:
            follow(trainer, self)

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
        self._start("fit", "updates", _total_updates(trainer))

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._start("fit", "updates", _total_updates(trainer), _updates_done(trainer))
        if self._enabled and hasattr(pl_module, "row_listeners"):  # a warm start's has none
            pl_module.row_listeners.append(self._rows_trained)  # pyright: ignore

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self.display is not None and hasattr(pl_module, "row_listeners"):
            self.display.begin("update", "rows", len(batch))

    def _rows_trained(self, part: Batch, _: Any) -> None:
        """A micro-batch has gone forward and backward. Rows without an advantage are left out, so that an update may end early."""
        if self.display is not None:
            self.display.advance(self.display.bars["update"], len(part))
            self._pulse("update", self.display.so_far("update"))

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.display is not None:
            self.display.update(self.display.bars[self._name], completed=_updates_done(trainer))
            self.display.lines["train"] = said = train_summary(trainer.callback_metrics)
            self._pulse("train", said)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.display is not None:
            self._plain("train", self.display.lines.get("train", ""))

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._enabled and hasattr(pl_module, "row_listeners"):
            pl_module.row_listeners.remove(self._rows_trained)  # pyright: ignore
        self._stop()

    # ------------------------------------------------------------------ validation and test

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Of `validate`; the validations of a fit are part of its display."""
        if trainer.state.fn == TrainerFn.VALIDATING:
            self._start("validate", "batches", int(sum(trainer.num_val_batches)))

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.display is not None and not trainer.sanity_checking:
            if trainer.state.fn == TrainerFn.VALIDATING:
                self.display.advance(self.display.bars[self._name])
            self.display.lines["validation"] = said = validation_summary(trainer.callback_metrics)
            self._plain("validation", said)

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._num_conditions is None:
            self._start("test", "conditions", int(sum(trainer.num_test_batches)))
        else:
            self._start("test", "conditions", self._num_conditions(), self._conditions_done)

    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._conditions_done += 1
        if self.display is not None:
            self.display.advance(self.display.bars[self._name])
            if self._outcomes:
                self._plain(self._label, success_text(self._outcomes))

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._stop()

    # ------------------------------------------------------------------ rollouts

    def begin(self, label: str, num_lifecycles: int, num_tasks: int) -> None:
        if self.display is not None:
            self._label, self._failed, self._outcomes = label, 0, [[] for _ in range(num_tasks)]
            self.display.begin("rollout", "tasks", num_lifecycles * num_tasks)
            self.display.lines |= {"playing": label, "success": success_text(self._outcomes)}

    def episode(self, episode: Episode) -> None:
        if self.display is not None and self._outcomes and episode.kind is EpisodeKind.SOLVE:
            self.display.advance(self.display.bars["rollout"])  # lifecycles end late, and all at once
            self._pulse(f"rollout {self._label}", self.display.so_far("rollout"))

    def lifecycle(self, lifecycle: Lifecycle) -> None:
        if self.display is not None and self._outcomes:
            self._failed += lifecycle.failed
            for episode in lifecycle.solves:
                if episode.success is not None and episode.position < len(self._outcomes):  # a program may solve more
                    self._outcomes[episode.position].append(episode.success)
            self.display.update(self.display.bars["rollout"], failed=self._failed)
            self.display.lines["success"] = success_text(self._outcomes)

    # ------------------------------------------------------------------ display

    def _start(self, name: str, unit: str, total: int | None, done: int = 0) -> None:
        if not self._enabled or self.console is None:
            return
        if self.display is None:
            self.display = Display(self.console)
            self.display.start()
        self._name, self._said_at = name, time.monotonic()
        self.display.begin(name, unit, total, done)

    def _stop(self) -> None:
        if self.display is not None:
            self.display.stop()
        self.display, self._outcomes = None, []

    def _plain(self, name: str, text: str) -> None:
        """One line of a log, where nothing is drawn."""
        if self.display is not None and self.display.disable and text:
            self._said_at = time.monotonic()
            self.print(f"{self.display.so_far(self._name)}  {name}: {text}")

    def _pulse(self, name: str, text: str) -> None:
        """One line of a log, unless there was one lately."""
        if time.monotonic() - self._said_at >= _LINE_EVERY_S:
            self._plain(name, text)


def _updates_done(trainer: L.Trainer) -> int:
    return trainer.fit_loop.total_batch_idx + 1


def _total_updates(trainer: L.Trainer) -> int | None:
    """Updates at which the run ends, by `max_steps` or `max_epochs`; None if neither is set."""
    total = float(trainer.estimated_stepping_batches)
    return None if math.isinf(total) else int(total)
