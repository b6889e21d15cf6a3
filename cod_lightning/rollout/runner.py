"""Runs the rollouts of a process, one at a time, and is the interface between a DataModule and its callbacks.

The next training rollout may be played in a thread of its own while training goes on with the one before it.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cod_lightning.engines.base import Engine
from cod_lightning.errors import GivenUp
from cod_lightning.ranks import gathered_at_first, rank
from cod_lightning.rollout.deadlines import Liveness, Watchdog
from cod_lightning.rollout.segments import count_drift
from cod_lightning.rollout.setting import RolloutMonitor
from cod_lightning.rollout.stats import RolloutStats, stop_if_too_many
from cod_lightning.types import Group

_GIVE_UP_S = 30.0
"""Longest wait, at the end of a failed run, for the engine's current turn in a rollout that is given up."""


class RolloutObserver:
    """Follows rollouts and updates (`RolloutRunner.follow`); every method does nothing unless a subclass overrides it."""

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        """A rollout is over; `label` is `train`, `validation`, `predict` or `test_SUITE_CONDITION`.

        On several ranks each gets the training groups that it trains on; of all other rollouts rank 0 gets all groups, and the
        other ranks none. A rollout ahead is reported when training takes it.
        """

    def update_finished(self) -> None:
        """An update is over, its logging included, and its epoch goes on."""

    def update_begins(self) -> None:
        """The next update begins, with its rollout if it is the first one of it; after every `update_finished`.

        An exception raised here ends the run with the state of now.
        """


@dataclass(frozen=True, kw_only=True)
class RolloutPart:
    """Groups of this rank that were played together: a rollout, or replacements in one."""

    groups: Sequence[Group]
    seconds: float
    replacing: bool
    """Whether they were played in place of other packs of the same rollout."""
    num_prompt_tokens: int = 0
    """As the engine counts them; so are cached ones. Not in checkpoints."""
    num_cached_tokens: int = 0

    @property
    def stats(self) -> RolloutStats:
        """What it cost."""
        stats = RolloutStats.of(self.groups, self.seconds, count_drift(self.groups), replacing=self.replacing)
        return replace(stats, num_whole_prompt_tokens=self.num_prompt_tokens, num_cached_tokens=self.num_cached_tokens)


class RolloutRunner:
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
        """Of the run; the report of a stall goes there."""
        self.stop_ids: frozenset[int] = frozenset()
        """Token ids that end a response; known after the DataModule's `setup`."""
        self.monitor = RolloutMonitor()
        """Called as episodes end, from the rollout's own thread."""
        self.interruptible: Callable[[], AbstractContextManager[None]] = nullcontext
        """Entered around every rollout, by every rank equally often; what runs inside may be given up and repeated."""
        self.last_rollout: RolloutStats | None = None
        """Of this rank's part in the latest rollout."""
        self.waited_s: float | None = None
        """Seconds that training stood still for the current rollout, where the next one is played ahead."""
        self.updates_left = 0
        """Updates of the current training rollout that are still to come."""
        self.ends_epoch = False
        """Whether an epoch of several rollouts ends with the rollout of the next update."""
        self.source_metrics: Mapping[str, float] = {}
        """Of the source of training packs, after the current rollout."""
        self.replay_metrics: Mapping[str, float] = {}
        """Of what is replayed in the updates of the current rollout."""
        self.liveness = Liveness()
        self.ahead = RolloutAhead(self.liveness)
        """The next training rollout, with `data.max_staleness` above 0."""
        self._observers: list[RolloutObserver] = []

    def follow(self, observer: RolloutObserver) -> None:
        """Report to this observer from now on; following twice is following once."""
        if observer not in self._observers:
            self._observers.append(observer)

    def unfollow(self, observer: RolloutObserver) -> None:
        """Stop reporting to this observer."""
        if observer in self._observers:
            self._observers.remove(observer)

    # ------------------------------------------------------------------ rollouts

    def run(self, label: str, play: Callable[[], list[Group]], *, replacing: bool = False) -> list[Group]:
        """This rank's groups of a rollout, which is played now and reported."""
        self.ahead.settle()
        with self.interruptible():
            part = self.timed(label, play, replacing=replacing)
        self.report(label, part)
        return list(part.groups)

    def timed(self, label: str, play: Callable[[], list[Group]], *, replacing: bool = False) -> RolloutPart:
        """The rollout without the report; any thread may call it."""
        start, prompts, cached = time.perf_counter(), self.engine.num_prompt_tokens, self.engine.num_cached_tokens
        with self._watched(f"the rollout '{label}'"):
            groups = play()
        return RolloutPart(
            groups=groups,
            seconds=time.perf_counter() - start,
            replacing=replacing,
            num_prompt_tokens=self.engine.num_prompt_tokens - prompts,
            num_cached_tokens=self.engine.num_cached_tokens - cached,
        )

    def report(self, label: str, part: RolloutPart) -> None:
        """Report the rollout to the observers, on every rank. Stats of replacements are added to those of their rollout.

        Raises `TooManyFailures`.
        """
        before = self.last_rollout if part.replacing else None
        self.last_rollout = part.stats if before is None else before + part.stats
        groups = part.groups if label == "train" else gathered_at_first(part.groups)
        for observer in list(self._observers):
            observer.rollout_played(label, groups)
        stop_if_too_many(label, part.groups, self.max_failed_fraction)

    @contextmanager
    def engine_at_rest(self, label: str) -> Iterator[None]:
        """Nothing samples within; a stall is reported under that label."""
        self.ahead.settle()
        with self._watched(label):
            yield

    def _watched(self, label: str) -> Watchdog:
        name = f"stalled.rank{rank()}.txt" if rank() else "stalled.txt"
        return Watchdog(self.liveness, self.stall_s, self.folder / name, label)

    # ------------------------------------------------------------------ updates

    def next_update(self, *, first: bool) -> None:
        """Call the observers at the beginning of the next update of an epoch."""
        if not first:
            for observer in list(self._observers):
                observer.update_finished()
        for observer in list(self._observers):
            observer.update_begins()


class RolloutAhead:
    """At most one rollout, under way in a thread, or over and waiting to be taken.

    The thread makes no collective call. The engine is free for other work after `settle` only.

    Args:
        liveness: Marked by all episodes of the rollout; `give_up` ends them through it.
    """

    def __init__(self, liveness: Liveness) -> None:
        self._liveness = liveness
        self._future: Future[Any] | None = None
        self._thread: threading.Thread | None = None
        self._waited_s = 0.0

    def begin(self, play: Callable[[], Any]) -> None:
        """Play it beside whatever this thread does next."""
        assert self._future is None, "a rollout ahead has not been taken"
        future: Future[Any] = Future()
        self._future = future

        def run() -> None:
            try:
                played = play()
            except BaseException as error:  # raised again where it is taken
                future.set_exception(error)
            else:
                future.set_result(played)

        self._thread = threading.Thread(target=run, name="rollout ahead", daemon=True)
        self._thread.start()

    def put(self, played: Any) -> None:
        """Have a rollout wait that is over: one of a checkpoint."""
        self._future = Future()
        self._future.set_result(played)

    def settle(self) -> None:
        """Wait until the rollout under way, if there is one, is over. Signals are handled meanwhile."""
        begun = time.perf_counter()
        if self._future is not None:
            wait([self._future])  # `join` alone would handle no signal
            self._join()
        self._waited_s += time.perf_counter() - begun

    def done(self) -> Any:
        """The rollout once it is over, without taking it; None where there is none or it failed."""
        self.settle()
        return None if self._future is None or self._future.exception() else self._future.result()

    def take(self) -> Any:
        """The rollout, None where none was begun. Raises what ended it."""
        self.settle()
        future, self._future = self._future, None
        return None if future is None else future.result()

    def waited_s(self) -> float:
        """Seconds that `settle` took since the last call of this."""
        waited, self._waited_s = self._waited_s, 0.0
        return waited

    def drop(self) -> None:
        """Wait for it and forget it."""
        self.settle()
        self._future = None

    def give_up(self) -> None:
        """End it after its current turn and forget it; what it left in the engine is not cleaned up."""
        future, self._future = self._future, None
        if future is not None and not future.done():
            self._liveness.give_up(GivenUp("the run is over"))
            wait([future], timeout=_GIVE_UP_S)
            if future.done():
                self._liveness.give_up(None)
                self._join()

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._thread = None
