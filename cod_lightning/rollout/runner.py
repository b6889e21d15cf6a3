"""Runs the rollouts of a process, one at a time, and reports them to observers.

The next training rollouts may be played in a thread of their own while training goes on with an earlier one.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from cod_lightning.engines.base import Engine
from cod_lightning.errors import GivenUp
from cod_lightning.ranks import gathered_at_first, rank
from cod_lightning.rollout.deadlines import STALLED, Liveness, Watchdog
from cod_lightning.rollout.segments import count_drift
from cod_lightning.rollout.setting import RolloutMonitor
from cod_lightning.rollout.stats import RolloutStats, stop_if_too_many
from cod_lightning.types import Episode, Group, Lifecycle

_GIVE_UP_S = 30.0
"""Longest wait, at the end of a failed run, for the engine's current turn in a rollout that is given up."""


class RolloutObserver(RolloutMonitor):
    """Follows rollouts and updates (`RolloutRunner.follow`); every method does nothing unless a subclass overrides it."""

    def interruptible(self) -> AbstractContextManager[None]:
        """Entered around every rollout, by every rank equally often; what runs inside may be given up and repeated."""
        return nullcontext()

    def rollout_played(self, label: str, groups: Sequence[Group]) -> None:
        """A rollout is over; `label` is `train`, `validation`, `predict` or `test_SUITE_CONDITION`.

        On several ranks each gets the training groups that it trains on; of all other rollouts rank 0 gets all groups, and the
        other ranks none. A rollout ahead is reported when training takes it.
        """

    def update_finished(self) -> None:
        """An update is over, its logging included, and its epoch goes on."""

    def update_begins(self, *, new_rollout: bool, ends_epoch: bool) -> None:
        """The next update begins, with its rollout if that is a new one; after every `update_finished`.

        `ends_epoch` says whether an epoch of several rollouts ends with its rollout. An exception raised here ends the run with
        the state of now.
        """


@dataclass(frozen=True, kw_only=True)
class RolloutPart:
    """Groups of this rank that were played together: a rollout, or replacements in one."""

    groups: Sequence[Group]
    seconds: float
    replacing: bool
    """Whether they were played in place of other packs of the same rollout."""
    num_prompt_tokens: int = 0
    """As the engine counts them; so are cached ones and interrupted turns. Not in checkpoints."""
    num_cached_tokens: int = 0
    num_interrupted_turns: int = 0

    @property
    def stats(self) -> RolloutStats:
        """What it cost."""
        stats = RolloutStats.of(self.groups, self.seconds, count_drift(self.groups), replacing=self.replacing)
        return replace(
            stats,
            num_whole_prompt_tokens=self.num_prompt_tokens,
            num_cached_tokens=self.num_cached_tokens,
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
        """Of the run; the report of a stall goes there."""
        self.stop_ids: frozenset[int] = frozenset()
        """Token ids that end a response."""
        self.liveness = Liveness()
        self.ahead = RolloutAhead(self.liveness)
        """The next training rollouts, with `data.max_staleness` above 0."""
        self._observers: list[RolloutObserver] = []

    def start(self, folder: Path, stop_ids: frozenset[int]) -> None:
        """Take what is known once the run is set up."""
        self.folder, self.stop_ids = folder, stop_ids

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
        if not self.engine.in_flight:
            self.ahead.settle()
        with self.ahead.between(), self.interruptible():
            part = self.timed(label, play, replacing=replacing)
        self.report(label, part)
        return part

    def timed(self, label: str, play: Callable[[], list[Group]], *, replacing: bool = False) -> RolloutPart:
        """The rollout without the report; any thread may call it."""
        engine, start = self.engine, time.perf_counter()
        prompts, cached, cut = engine.num_prompt_tokens, engine.num_cached_tokens, engine.num_interrupted_turns
        with self.watched(f"the rollout '{label}'"):
            groups = play()
        return RolloutPart(
            groups=groups,
            seconds=time.perf_counter() - start,
            replacing=replacing,
            num_prompt_tokens=engine.num_prompt_tokens - prompts,
            num_cached_tokens=engine.num_cached_tokens - cached,
            num_interrupted_turns=engine.num_interrupted_turns - cut,
        )

    def report(self, label: str, part: RolloutPart) -> None:
        """Report the rollout to the observers, on every rank. Raises `TooManyFailures`."""
        groups = part.groups if label == "train" else gathered_at_first(part.groups)
        for observer in list(self._observers):
            observer.rollout_played(label, groups)
        stop_if_too_many(label, part.groups, self.max_failed_fraction)

    @contextmanager
    def engine_at_rest(self, label: str) -> Iterator[None]:
        """Nothing samples within, unless weights change in flight; a stall is reported under that label."""
        if not self.engine.in_flight:
            self.ahead.settle()
        with self.watched(label):
            yield

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

    def update_begins(self, *, new_rollout: bool, ends_epoch: bool) -> None:
        for observer in list(self._observers):
            observer.update_begins(new_rollout=new_rollout, ends_epoch=ends_epoch)

    def begin(self, label: str, num_lifecycles: int, num_tasks: int) -> None:
        for observer in list(self._observers):
            observer.begin(label, num_lifecycles, num_tasks)

    def episode(self, episode: Episode) -> None:
        for observer in list(self._observers):
            observer.episode(episode)

    def lifecycle(self, lifecycle: Lifecycle) -> None:
        for observer in list(self._observers):
            observer.lifecycle(lifecycle)

    def end(self) -> None:
        for observer in list(self._observers):
            observer.end()


class RolloutAhead:
    """Rollouts ahead of training, in their order: those that are over, the one under way in a thread, those to come.

    The thread makes no collective call. The engine is free for other work after `settle`, and within `between`.

    Args:
        liveness: Marked by all episodes of a rollout; `give_up` ends them through it.
    """

    def __init__(self, liveness: Liveness) -> None:
        self._liveness = liveness
        self._waiting: deque[Future[Any]] = deque()
        """Begun and not taken."""
        self._plays: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        """Those of them to come."""
        self._guard, self._engine = threading.Lock(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._playing = False
        self._waited_s = 0.0

    def __len__(self) -> int:
        """Rollouts that were begun and not taken."""
        return len(self._waiting)

    def begin(self, play: Callable[[], Any]) -> None:
        """Play it after those that were begun before, beside whatever this thread does next."""
        future: Future[Any] = Future()
        self._waiting.append(future)
        with self._guard:
            self._plays.append((future, play))
            if self._playing:
                return
            self._playing = True
        self._thread = threading.Thread(target=self._play, name="rollout ahead", daemon=True)
        self._thread.start()

    def _play(self) -> None:
        while True:
            with self._guard:
                if not self._plays:
                    self._playing = False
                    return
                future, play = self._plays.popleft()
            with self._engine:
                try:
                    played = play()
                except BaseException as error:  # raised again where it is taken
                    future.set_exception(error)
                else:
                    future.set_result(played)

    def put(self, played: Any) -> None:
        """Have a rollout wait that is over: one of a checkpoint."""
        future: Future[Any] = Future()
        future.set_result(played)
        self._waiting.append(future)

    def settle(self, most: int | None = None) -> None:
        """Wait until all, or the first `most`, are over. Signals are handled meanwhile."""
        begun = time.perf_counter()
        wait(list(self._waiting)[:most])  # `join` alone would handle no signal
        if most is None or len(self._waiting) <= most:
            self._join()
        self._waited_s += time.perf_counter() - begun

    @contextmanager
    def between(self) -> Iterator[None]:
        """Wait for the one under way; none begins within."""
        begun = time.perf_counter()
        with self._engine:
            self._waited_s += time.perf_counter() - begun
            yield

    def over(self) -> list[Any]:
        """Those that are over, without taking them, up to the first that is not or failed."""
        return [one.result() for one in takewhile(lambda one: one.done() and not one.exception(), list(self._waiting))]

    def take(self, place: int = 0) -> Any:
        """The one at this place in the queue once it is over, None where none was begun. Raises what ended it."""
        self.settle(place + 1)
        if not self._waiting:
            return None
        future = self._waiting[place]
        del self._waiting[place]
        return future.result()

    def waited_s(self) -> float:
        """Seconds that were waited since the last call of this."""
        waited, self._waited_s = self._waited_s, 0.0
        return waited

    def drop(self) -> None:
        """Wait for the one under way and forget all."""
        wait(self._under_way())
        self._join()
        self._waiting.clear()

    def give_up(self) -> None:
        """End the one under way after its current turn and forget all; what it left in the engine is not cleaned up."""
        under_way = self._under_way()
        self._waiting.clear()
        if any(not future.done() for future in under_way):
            self._liveness.give_up(GivenUp("the run is over"))
            if not wait(under_way, timeout=_GIVE_UP_S).not_done:
                self._liveness.give_up(None)
                self._join()

    def _under_way(self) -> list[Future[Any]]:
        """All but those to come, which will not be played any more."""
        with self._guard:
            to_come = {future for future, _ in self._plays}
            self._plays.clear()
        return [future for future in self._waiting if future not in to_come]

    def _join(self) -> None:
        if self._thread is not None:
            self._thread.join()
        self._thread = None
