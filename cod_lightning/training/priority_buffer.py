"""Which of the rollouts ahead is trained on next: those of newer weights first, but for noise, as CoD was trained."""

import random
from dataclasses import dataclass
from typing import Any

from cod_lightning.errors import check_at_least, check_between
from cod_lightning.seeds import derive_seed


@dataclass(frozen=True, slots=True)
class WaitingRollout:
    """A rollout that is begun and not trained on."""

    weights: int
    """Rollouts that its weights had been trained on."""
    priority: float


class PriorityBuffer:
    """The rollouts ahead, by priority; each is trained on once, or never.

    Weights are synced once every `rollouts_per_sync` rollouts, and only then are rollouts begun. They can be chosen from the next
    sync on. Of those that can be, training takes the one of the largest priority,

        priority = w + sigma * z,    z ~ N(0, 1), drawn once,

    where w is how many rollouts its weights had been trained on; of equal ones the oldest. With t rollouts trained, one with
    t - w > max_age is dropped where it would be taken.

    Source: the training configs of CoD's release (arXiv 2606.20002, agentscope-ai/Trinity-RFT): `sync_interval: 4`,
    `max_staleness: 20` and the priority function `decay_limit_randomization` with `sigma: 2.0`, where a version counts updates
    of 1,440 rows, about one rollout. Its further term, a decay by uses, is 0: `reuse_cooldown_time` is not set there, so that
    nothing is used twice. What differs: how many rollouts wait follows there from the speeds of sampling and training, here
    from `num_rollouts`, so that one seed gives one result.

    Args:
        sigma: Standard deviation of the noise, in rollouts; 0 takes the newest first.
        rollouts_per_sync: Rollouts from one weight sync to the next.
        num_rollouts: Rollouts that are begun and not trained on after each sync, without those that are too old for the next.
            Twice `rollouts_per_sync` keeps sampling and training one sync apart; with more, some are dropped.
    """

    def __init__(self, sigma: float = 2.0, rollouts_per_sync: int = 4, num_rollouts: int = 8) -> None:
        check_between("data.buffer.sigma", sigma, 0, 1e6, "2 is the source's, in rollouts.")
        check_at_least("data.buffer.rollouts_per_sync", rollouts_per_sync, 1, "4 is the source's.")
        remedy = "Twice data.buffer.rollouts_per_sync is usual."
        check_at_least("data.buffer.num_rollouts", num_rollouts, rollouts_per_sync, remedy)
        self.sigma, self.rollouts_per_sync, self.num_rollouts = sigma, rollouts_per_sync, num_rollouts
        self.waiting: list[WaitingRollout] = []
        """In the order in which they were begun."""

    def num_to_begin(self, trained: int, most: int, max_age: int) -> int:
        """How many make `most` that last until the next sync; none between two syncs."""
        if trained % self.rollouts_per_sync:
            return 0
        lasting = sum(trained + self.rollouts_per_sync - one.weights <= max_age for one in self.waiting)
        return max(0, most - lasting)

    def begin(self, trained: int, *identity: int) -> None:
        """A rollout is begun by the weights of the last sync; `identity` is its own, for the noise."""
        weights = trained - trained % self.rollouts_per_sync
        noise = random.Random(derive_seed("priority", *identity)).gauss(0.0, 1.0)
        self.waiting.append(WaitingRollout(weights, weights + self.sigma * noise))

    def num_eligible(self, trained: int) -> int:
        """How many of the oldest can be chosen: those begun before the last sync, else as many as come between two syncs."""
        last_sync = trained - trained % self.rollouts_per_sync
        there = sum(one.weights < last_sync for one in self.waiting)
        return there or min(len(self.waiting), self.rollouts_per_sync)

    def choose(self, trained: int, max_age: int) -> tuple[list[int], int | None]:
        """The places of those that are dropped, and of the one to train on; None where nothing is left.

        Each place is that in the queue without those before it.
        """
        dropped: list[int] = []
        while self.waiting:
            place = max(range(self.num_eligible(trained)), key=lambda i: (self.waiting[i].priority, -i))
            if trained - self.waiting.pop(place).weights <= max_age:
                return dropped, place
            dropped.append(place)
        return dropped, None

    def state_dict(self) -> dict[str, Any]:
        return {"waiting": [[one.weights, one.priority] for one in self.waiting]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.waiting = [WaitingRollout(weights, priority) for weights, priority in state_dict["waiting"]]
