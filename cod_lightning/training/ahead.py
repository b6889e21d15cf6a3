"""The rollout that is played in a thread of its own while training goes on with the one before it."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any

from cod_lightning.errors import GivenUp
from cod_lightning.ranks import gathered, num_ranks, rank
from cod_lightning.rollout import transcript
from cod_lightning.rollout.faults import count_faults
from cod_lightning.rollout.pulse import Pulse
from cod_lightning.rollout.segments import count_drift
from cod_lightning.rollout.stats import RolloutStats
from cod_lightning.training.rollouts import Place
from cod_lightning.training.shares import owners
from cod_lightning.types import Group

_LONGEST_FAREWELL_S = 30.0
"""For so long the end of a failed run waits for a rollout that it gives up: for the turn that an engine is at."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """Groups of this rank that were played together."""

    groups: Sequence[Group]
    seconds: float
    replacing: bool
    """Whether they were played in place of others of the same rollout."""

    @property
    def stats(self) -> RolloutStats:
        """What it cost."""
        return RolloutStats.of(self.groups, self.seconds, count_drift(self.groups), replacing=self.replacing)


@dataclass(frozen=True, kw_only=True)
class Played:
    """A rollout of which nothing has been made and nobody been told yet."""

    places: Sequence[Place]
    num_packs: int
    """Training packs that it took."""
    rounds: Sequence[Round]


class RolloutAhead:
    """At most one rollout, under way in a thread, or over and waiting to be trained on.

    The thread asks no other rank for anything. Nobody else may use the engine before `settle`.

    Args:
        play: From the number of the first training pack to the rollout; called in the thread.
        pulse: What all its episodes go by; how they are told that the rollout is given up.
    """

    def __init__(self, play: Callable[[int], Played], pulse: Pulse) -> None:
        self._play, self._pulse = play, pulse
        self._future: Future[Played] | None = None
        self._thread: threading.Thread | None = None
        self._waited_s = 0.0

    def begin(self, first_pack: int) -> None:
        """Play from that training pack on, beside whatever this thread does next."""
        assert self._future is None, "a rollout ahead has not been taken"
        future: Future[Played] = Future()
        self._future = future

        def run() -> None:
            try:
                played = self._play(first_pack)
            except BaseException as error:  # raised again where it is taken
                future.set_exception(error)
            else:
                future.set_result(played)

        self._thread = threading.Thread(target=run, name="rollout ahead", daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """Wait for the rollout under way, if there is one: from here on the engine is free. Signals are heard meanwhile."""
        begun = time.perf_counter()
        if self._future is not None:
            wait([self._future])  # `join` alone would hear no signal
            self._ended()
        self._waited_s += time.perf_counter() - begun

    def take(self) -> Played | None:
        """The rollout, None where none was begun. Raises what ended it."""
        self.settle()
        future, self._future = self._future, None
        return None if future is None else future.result()

    def waited_s(self) -> float:
        """Seconds that `settle` took since this was last asked."""
        waited, self._waited_s = self._waited_s, 0.0
        return waited

    def _ended(self) -> None:
        """The thread has said its last word."""
        if self._thread is not None:
            self._thread.join()
        self._thread = None

    def drop(self) -> None:
        """Wait for it and forget it."""
        self.settle()
        self._future = None

    def give_up(self) -> None:
        """Break it off and forget it; what it left in the engine is of no use to anybody."""
        future, self._future = self._future, None
        if future is not None and not future.done():
            self._pulse.give_up(GivenUp("the run is over"))
            wait([future], timeout=_LONGEST_FAREWELL_S)
            if future.done():
                self._pulse.give_up(None)
                self._ended()

    def saved(self, max_failed_fraction: float) -> dict[str, Any] | None:
        """The rollout of all ranks, once it is over, as its lifecycles' transcript; every rank has to ask.

        The weights that sampled it are gone by the time a run goes on from a checkpoint. One that failed, or that lost more
        lifecycles than may fail, is about to end the run and is not kept: the run that goes on plays it again.
        """
        self.settle()
        future = self._future
        parts = gathered(None if future is None or future.exception() else _plain(future.result()))
        kept = [part for part in parts if part is not None]
        if len(kept) < len(parts):
            return None
        rounds = [_joined(of_ranks) for of_ranks in zip(*(part["rounds"] for part in kept), strict=True)]
        if any(one["num_failed"] > max_failed_fraction * one["num_lifecycles"] for one in rounds):
            return None
        return {**kept[0], "rounds": rounds}

    def restore(self, saved: dict[str, Any] | None) -> None:
        """Have it wait to be taken; another number of ranks shares its groups out anew."""
        self._future = None
        if saved is None:
            return
        names, ranks = saved["packs"], saved["ranks"]
        if max(ranks) + 1 != num_ranks():
            ranks = owners(len(names), 1)
        owner = dict(zip(names, ranks, strict=True))
        loaded = [(one, transcript.load(one["lines"])) for one in saved["rounds"]]
        groups = {group.pack.id: group for _, of_round in loaded for group in of_round}
        own = {name: group for name, group in groups.items() if owner.get(name, 0) == rank()}
        rounds = [
            Round(
                groups=[group for group in of_round if group.pack.id in own],
                seconds=one["seconds"],
                replacing=one["replacing"],
            )
            for one, of_round in loaded
        ]
        places = [Place(groups[name].pack, r, own.get(name)) for name, r in owner.items()]
        self._future = Future()
        self._future.set_result(Played(places=places, num_packs=saved["num_packs"], rounds=rounds))


def _plain(played: Played) -> dict[str, Any]:
    """Plain containers; of groups, those of this rank."""
    return {
        "packs": [place.pack.id for place in played.places],
        "ranks": [place.rank for place in played.places],
        "num_packs": played.num_packs,
        "rounds": [
            {
                "lines": [line for group in one.groups for line in transcript.dump(group)],
                "seconds": one.seconds,
                "replacing": one.replacing,
                "num_lifecycles": sum(len(group.lifecycles) for group in one.groups),
                "num_failed": sum(count_faults(one.groups).values()),
            }
            for one in played.rounds
        ],
    }


def _joined(of_ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A round of all ranks."""
    sums = {key: sum(part[key] for part in of_ranks) for key in ("num_lifecycles", "num_failed")}
    lines = [line for part in of_ranks for line in part["lines"]]
    return {**of_ranks[0], **sums, "lines": lines, "seconds": max(part["seconds"] for part in of_ranks)}
