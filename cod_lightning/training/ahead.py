"""Where training's groups come from: a source has those of one rollout after another, or leaves it to training to play them now.

Here whole rollouts, each by the weights of one sync; `in_flight.py` begins and takes groups one by one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cod_lightning.errors import ConfigError
from cod_lightning.ranks import gathered
from cod_lightning.rollout.runner import Owed
from cod_lightning.training.packs import PackChoice
from cod_lightning.training.played import PlayedRollout, restored, saved

if TYPE_CHECKING:
    from cod_lightning.training.rollouts import TrainingRollouts


class Taken(NamedTuple):
    """What a source has for the next updates."""

    rollout: PlayedRollout | None
    """None where none was begun: it is played now."""
    dropped: Sequence[PlayedRollout] = ()
    """Those that nothing is trained on any more."""
    figures: Mapping[str, float] = {}
    """What is logged of it."""


class GroupSource(Protocol):
    """Groups of training rollouts ahead of training; every rank has to call each method."""

    def take(self, number: int, first: int) -> Taken:
        """Rollout `number`, from training pack `first` on, once it is over. Raises what ended it."""
        ...

    def begin(self, number: int, first: int) -> None:
        """Begin what is to be ahead of training after rollout `number`; `first` training packs were taken."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from it; what was kept in another source's form is dropped."""
        ...


@dataclass(frozen=True)
class RolloutsAhead:
    """Whole rollouts in their order, or as a buffer chooses."""

    rollouts: "TrainingRollouts"

    def take(self, number: int, first: int) -> Taken:
        runner, buffer = self.rollouts.runner, self.rollouts.buffer
        runner.play_owed(self._played_again)
        if buffer is not None:  # a run before this one may have given up others, and a checkpoint not have kept them
            del buffer.waiting[len(runner.ahead.begun) :]
        with runner.interruptible():  # a signal ends the wait
            runner.ahead.settle(1 if buffer is None else buffer.num_eligible(number))
        if buffer is None:
            return Taken(runner.ahead.take())
        num_dropped, place = buffer.choose(number)
        dropped = [runner.ahead.take() for _ in range(num_dropped)]
        figures = {"train/dropped_rollouts": float(num_dropped)}
        return Taken(None if place is None else runner.ahead.take(place), dropped, figures)

    def _played_again(self, key: dict[str, Any]) -> PlayedRollout:
        """The rollout that was begun by this key (`_begin`)."""
        choices = [PackChoice(**choice) for choice in key["choices"]]
        drawn = [(choice, self.rollouts.packs.pack(choice)) for choice in choices]
        return self.rollouts.played(key["first"], partial(self.rollouts.runner.timed, "train"), drawn)

    def begin(self, number: int, first: int) -> None:
        begun, buffer, needed = self.rollouts.runner.ahead.begun, self.rollouts.buffer, self.rollouts.num_needed()
        count = buffer.num_to_begin(number, needed) if buffer else min(self.rollouts.max_staleness, needed) - len(begun)
        for _ in range(int(count)):
            num_waiting = len(begun) * self.rollouts.packs_per_rollout
            self._begin(first + num_waiting, num_waiting)
            if buffer is not None:
                buffer.begin(number, self.rollouts.seed, first + num_waiting)

    def _begin(self, first: int, num_waiting: int) -> None:
        """Begin the rollout from training pack `first` on; `num_waiting` packs before it are not observed yet.

        Its packs are chosen here and now, on all ranks at the same place in the order of observations.
        """
        ahead = self.rollouts.runner.ahead
        try:
            drawn = self.rollouts.draw(first, self.rollouts.packs_per_rollout, num_waiting)
        except ConfigError as error:  # raised again where the rollout is taken
            ahead.begin(partial(_raise, error))
        else:
            key = {"first": first, "choices": [asdict(choice) for choice, _ in drawn]}
            ahead.begin(partial(self.rollouts.played, first, partial(self.rollouts.runner.timed, "train"), drawn), key)

    def state_dict(self) -> dict[str, Any]:
        """All that were begun are waited for, except after a signal."""
        self.rollouts.runner.settle()
        over, owed = self._kept(), self.rollouts.runner.owed
        kept = {"ahead": over} | ({} if self.rollouts.buffer is None else {"buffer": self.rollouts.buffer.state_dict()})
        # one that failed comes before those
        if owed is None or len(over) + len(owed.rollouts) < len(self.rollouts.runner.ahead.begun):
            return kept
        return kept | {"owed": vars(owed)}

    def _kept(self) -> list[dict[str, Any]]:
        over = self.rollouts.runner.ahead.over()
        kept: list[dict[str, Any]] = []
        for played in over[: min(gathered(len(over)))]:
            state = saved(played, self.rollouts.runner.max_failed_fraction)
            if state is None:
                break
            kept.append(state)
            if self.rollouts.packs.source.needs_contexts:
                state["contexts"] = self.rollouts.contexts(played)
        return kept

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        owed = Owed(**state_dict["owed"]) if "owed" in state_dict else None
        self.rollouts.runner.restore([restored(kept, self.rollouts.packs.pack) for kept in state_dict["ahead"]], owed)
        if self.rollouts.buffer is not None and "buffer" in state_dict:
            self.rollouts.buffer.load_state_dict(state_dict["buffer"])


def _raise(error: Exception) -> None:
    raise error
