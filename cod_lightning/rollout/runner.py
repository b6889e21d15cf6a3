"""Runs the rollouts of a process, one at a time, and reports them to observers."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cod_lightning.engines.base import Engine
from cod_lightning.ranks import gathered_at_first, rank
from cod_lightning.rollout.ahead import GroupsAhead
from cod_lightning.rollout.deadlines import STALLED, Liveness, Watchdog
from cod_lightning.rollout.segments import count_drift
from cod_lightning.rollout.setting import RolloutMonitor
from cod_lightning.rollout.stats import RolloutStats, stop_if_too_many
from cod_lightning.types import Episode, Group, Lifecycle


class RolloutObserver(RolloutMonitor):
    """Follows rollouts and updates (`RolloutRunner.follow`); every method does nothing unless a subclass overrides it."""

    def interruptible(self) -> AbstractContextManager[None]:
        """Entered around every rollout, by every rank equally often; what runs inside may be given up and repeated."""
        return nullcontext()

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        """A rollout is over; `label` is `train`, `validation` or `test_SUITE_CONDITION`.

        On several ranks each gets the training groups that it trains on; of all other rollouts rank 0 gets all groups, and the
        other ranks none. A rollout ahead is reported when training takes it.
        """

    def update_finished(self) -> None:
        """An update is over, its logging included, and its epoch goes on."""

    def update_begins(self) -> None:
        """The next update begins, with its rollout if that is a new one; after every `update_finished`.

        An exception raised here ends the run with the state of now.
        """


@dataclass(frozen=True, kw_only=True)
class RolloutPart:
    """Groups of this rank that were played together: a rollout, or replacements in one."""

    groups: Sequence[Group]
    seconds: float
    replacing: bool
    """Whether they were played in place of other packs of the same rollout."""
    num_interrupted_turns: int = 0
    """As the engine counts them. Not in checkpoints."""

    @property
    def stats(self) -> RolloutStats:
        """What it cost."""
        return RolloutStats.of(
            self.groups,
            self.seconds,
            count_drift(self.groups),
            replacing=self.replacing,
            num_interrupted_turns=self.num_interrupted_turns,
        )


class RolloutRunner(RolloutMonitor):
    """Runs rollouts one at a time: each has the engine for itself, is timed, watched for stalls and reported to observers.

    A DataModule that rolls out lifecycles offers it as `runner`, and callbacks use nothing else of the DataModule.

    Args:
        engine: What samples.
        stall_s: Seconds without any progress after which the process ends; null: never.
        max_failed_fraction: Share of a rollout's lifecycles that may fail; beyond, `TooManyFailures` ends the run.
    """

    def __init__(self, engine: Engine, stall_s: float | None = None, max_failed_fraction: float = 1.0) -> None:
        self.engine = engine
        self.stall_s, self.max_failed_fraction = stall_s, max_failed_fraction
        self.folder = Path()
        """Of the run, once it is known."""
        self.liveness = Liveness()
        self.ahead = GroupsAhead(self.liveness, partial(self.watched, "the rollouts ahead"))
        """The next training groups, with `data.max_staleness` above 0."""
        self._observers: list[RolloutObserver] = []

    def start(self, folder: Path) -> None:
        """Take the folder of the run, where the report of a stall goes."""
        self.folder = folder

    def follow(self, observer: RolloutObserver) -> None:
        """Report to this observer from now on; following twice is following once."""
        if observer not in self._observers:
            self._observers.append(observer)

    def unfollow(self, observer: RolloutObserver) -> None:
        """Stop reporting to this observer."""
        if observer in self._observers:
            self._observers.remove(observer)

    # ------------------------------------------------------------------ rollouts

    def run(self, label: str, play: Callable[[], list[Group]], *, replacing: bool = False) -> RolloutPart:
        """This rank's part of a rollout, which is played now and reported."""
        with self.interruptible():
            self.ahead.settle()
            interrupted, start = self.engine.num_interrupted_turns, time.perf_counter()
            with self.watched(f"the rollout '{label}'"):
                groups = play()
            part = RolloutPart(
                groups=groups,
                seconds=time.perf_counter() - start,
                replacing=replacing,
                num_interrupted_turns=self.engine.num_interrupted_turns - interrupted,
            )
        self.report(label, part)
        return part

    def report(self, label: str, part: RolloutPart) -> None:
        """Report the rollout to the observers, on every rank. Raises `TooManyFailures`."""
        groups = part.groups if label == "train" else gathered_at_first(part.groups)
        for observer in list(self._observers):
            observer.rollout_played(label, groups)
        stop_if_too_many(label, part.groups, self.max_failed_fraction)

    @contextmanager
    def engine_at_rest(self, label: str) -> Iterator[None]:
        """Nothing samples within, unless weights change in flight; a stall is reported under that label."""
        self.settle()
        with self.watched(label):
            yield

    def settle(self) -> None:
        """Wait for the groups ahead, unless weights change in flight."""
        if not self.engine.in_flight:
            self.ahead.settle()

    def phase(self, label: str) -> Watchdog:
        """Watch what is called by that name, in which nothing is counted: it has `stall_s` seconds to be over."""
        return self.watched(label, Liveness())

    def watched(self, label: str, liveness: Liveness | None = None) -> Watchdog:
        """Watch for as long as marks may be missing at a time; a stall is reported under that label."""
        name = f"stalled.rank{rank()}.txt" if rank() else STALLED
        return Watchdog(liveness or self.liveness, self.stall_s, self.folder / name, label)

    # ------------------------------------------------------------------ what observers follow

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Within all observers' own."""
        with ExitStack() as stack:
            for observer in list(self._observers):
                stack.enter_context(observer.interruptible())
            yield

    def update_finished(self) -> None:
        for observer in list(self._observers):
            observer.update_finished()

    def update_begins(self) -> None:
        for observer in list(self._observers):
            observer.update_begins()

    def begin(self, label: str, num_lifecycles: int, num_tasks: int) -> None:
        for observer in list(self._observers):
            observer.begin(label, num_lifecycles, num_tasks)

    def episode(self, episode: Episode) -> None:
        for observer in list(self._observers):
            observer.episode(episode)

    def lifecycle(self, lifecycle: Lifecycle) -> None:
        for observer in list(self._observers):
            observer.lifecycle(lifecycle)
