"""Which of the rollouts ahead is trained on next: those of newer weights first, but for noise, as CoD was trained."""

import random
from dataclasses import dataclass
from typing import Any

from cod_lightning.ranges import Count, NonNegative, Several
from cod_lightning.seeds import derive_seed
from cod_lightning.training.ahead import RolloutBuffer


@dataclass(frozen=True, slots=True)
class WaitingRollout:
    """A rollout that is begun and not trained on."""

    weights: int
    """Rollouts that its weights had been trained on."""
    priority: float


class PriorityBuffer(RolloutBuffer):
    """The rollouts ahead, by priority; each is trained on once, or never.

    Weights are synced once every `rollouts_per_sync` rollouts, and only then are rollouts begun. They can be chosen from the next
    sync on. Of those that can be, training takes the one of the largest priority,

        priority = w + sigma * z,    z ~ N(0, 1), drawn once,

    where w is how many rollouts its weights had been trained on; of equal ones the oldest. With t rollouts trained, those with
    t - w > versions * rollouts_per_sync are dropped.

    Source: the training configs of CoD's release (arXiv 2606.20002, agentscope-ai/Trinity-RFT): `sync_interval: 4`,
    `max_staleness: 20` and the priority function `decay_limit_randomization` with `sigma: 2.0`, where a version counts updates
    of 1,440 rows, about one rollout. Its further term, a decay by uses, is 0: `reuse_cooldown_time` is not set there, so that
    nothing is used twice. What differs: a sync comes there after 4 rollouts are sampled, however many were trained on meanwhile,
    here `rollouts_per_sync` says how many, so that one seed gives one result.

    Args:
        sigma: Standard deviation of the noise, in rollouts; 0 takes the newest first.
        rollouts_per_sync: Rollouts that are trained on between two weight syncs: 4 where sampling and training take alike, 2 where
            sampling is twice as fast.
        rollouts_begun: Rollouts that are begun at every sync, `rollouts_per_sync` at least; those beyond are dropped in time.
        versions: Versions, of which each sync makes one, that a rollout may be behind the weights.
    """

    def __init__(
        self, sigma: NonNegative = 2.0, rollouts_per_sync: Count = 4, rollouts_begun: Count = 4, versions: Several = 5
    ) -> None:
        self.sigma, self.rollouts_per_sync, self.versions = sigma, rollouts_per_sync, versions
        self.max_age = versions * rollouts_per_sync
        """In rollouts."""
        self.rollouts_begun = max(rollouts_begun, rollouts_per_sync)
        self.waiting: list[WaitingRollout] = []
        """In the order in which they were begun."""

    def num_to_begin(self, trained: int, needed: float) -> int:
        """None between two syncs."""
        if trained % self.rollouts_per_sync:
            return 0
        first = 0 if trained else self.rollouts_per_sync - 1  # the others of those before the first sync
        lasting = sum(trained + needed - one.weights <= self.max_age for one in self.waiting)
        return int(min(first + self.rollouts_begun, max(0, needed - lasting)))

    def begin(self, trained: int, *identity: int) -> None:
        """By the weights of the last sync."""
        weights = self._last_sync(trained)
        noise = random.Random(derive_seed("priority", *identity)).gauss(0.0, 1.0)
        self.waiting.append(WaitingRollout(weights, weights + self.sigma * noise))

    def num_eligible(self, trained: int) -> int:
        """Those begun before the last sync, else as many as come between two syncs."""
        there = sum(one.weights < self._last_sync(trained) for one in self.waiting)
        return there or min(len(self.waiting), self.rollouts_per_sync)

    def choose(self, trained: int) -> tuple[int, int | None]:
        num_dropped = sum(trained - one.weights > self.max_age for one in self.waiting)
        del self.waiting[:num_dropped]
        eligible = range(self.num_eligible(trained))
        place = max(eligible, key=lambda i: (self.waiting[i].priority, -i), default=None)
        if place is not None:
            del self.waiting[place]
        return num_dropped, place

    def keep(self, num: int) -> None:
        del self.waiting[num:]

    def _last_sync(self, trained: int) -> int:
        """Rollouts trained on before it."""
        return trained - trained % self.rollouts_per_sync

    def state_dict(self) -> dict[str, Any]:
        return {"waiting": [[one.weights, one.priority] for one in self.waiting]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.waiting = [WaitingRollout(weights, priority) for weights, priority in state_dict["waiting"]]
