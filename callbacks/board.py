"""What the progress display shows: counts that a rollout can raise cheaply, and their picture in rich."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.progress_bar import ProgressBar as Bar
from rich.table import Table
from rich.text import Text

from cod_lightning.evaluation.metrics import by_position
from cod_lightning.types import Lifecycle

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
