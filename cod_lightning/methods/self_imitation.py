"""Self-imitation: the run's own episodes that were better than their baseline are trained on again."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from cod_lightning.credit.credited import NO_ADVANTAGE
from cod_lightning.ranges import Count, Natural, NonNegative, Positive
from cod_lightning.seeds import derive_seed
from cod_lightning.training.replay import RecordedEpisode, RecordedRollout, Replay, ReplayedEpisode, drawn

_BASELINE_SIZE = 10_240
"""Group returns of which the median is taken, of each kind and position; SPEAR's number."""


class SelfImitation(Replay):
    """Stores episodes of positive advantage; some join each update, with what their advantage would be now.

    Of a stored episode, R is the return, A > 0 the advantage, less what `AsymRE` adds to all, and B the mean return of its siblings
    of then; M is the median of the latest group means of its kind and position. In rollout n its advantage is

        A' = weight(n) A (R - M) / (R - B),    weight(n) = coefficient (1 - cos(pi min(1, (n + 1) / warmup_rollouts))) / 2

    which is weight(n) (R - M) where A is R - B, as with `baseline=GroupMean` and `model.scale=none`. As the policy improves M
    rises, and episodes that are no longer good, R <= M, are left alone. They are drawn with probabilities in proportion to
    (A' / weight(n)) ** priority.

    Source: SPEAR (arXiv 2509.22601 and its code, whose buffer has 2048 trajectories of at most 10 steps of age, with the median of
    10240 rewards and a rise over 200 steps); priorities are those of Oh et al., "Self-Imitation Learning" (arXiv 1806.05635),
    whose exponent is 0.6. What differs: an episode is what is stored, compared at its place, so that with `TrajectoryCredit` a
    lifecycle is good as a whole; some episodes join every update, where the source waits until its buffer is full, trains on
    all of it and empties it; no reward for tool calls, and no clip by covariance.

    Args:
        episodes_per_update: Stored episodes that join an update, at most.
        coefficient: Weight of replayed advantages at the end of its rise, above 0.
        warmup_rollouts: Rollouts over which the weight rises from 0; 0 begins with the whole.
        priority: Exponent of the advantage in the probability to be drawn; 0 draws all alike.
        max_episodes: Most episodes that are stored.
        max_tokens: Most tokens that are stored.
        max_age: Policy versions that a stored episode may be behind.
    """

    def __init__(
        self,
        episodes_per_update: Count = 64,
        coefficient: Positive = 1.0,
        warmup_rollouts: Natural = 200,
        priority: NonNegative = 0.6,
        max_episodes: Count = 2048,
        max_tokens: Count = 1_000_000,
        max_age: Count = 10,
    ) -> None:
        super().__init__(max_episodes, max_tokens, max_age)
        self.episodes_per_update, self.coefficient = episodes_per_update, coefficient
        self.warmup_rollouts, self.priority = warmup_rollouts, priority
        self.returns: dict[str, deque[float]] = {}
        """The latest group returns, by place."""
        self.weight = 0.0

    def worth(self, episode: RecordedEpisode) -> float:
        better = episode.episode_return - episode.group_return > NO_ADVANTAGE
        return episode.advantage if better and episode.advantage > NO_ADVANTAGE else 0.0

    def observe(self, rollout: RecordedRollout) -> None:
        for _, place, value in dict.fromkeys((one.pack_id, one.place, one.group_return) for one in rollout.episodes):
            self.returns.setdefault(place, deque(maxlen=_BASELINE_SIZE)).append(value)
        share = min(1.0, (rollout.number + 1) / max(1, self.warmup_rollouts))
        self.weight = self.coefficient * (1 - math.cos(math.pi * share)) / 2

    def choose(
        self, stored: Sequence[RecordedEpisode], rollout: RecordedRollout
    ) -> Sequence[Sequence[ReplayedEpisode]]:
        """The same episode may join several updates, none of them twice."""
        medians = {place: median(values) for place, values in self.returns.items()}
        now = {
            one: (one.advantage - one.of_equals)
            * (one.episode_return - medians[one.place])
            / (one.episode_return - one.group_return)
            for one in stored
        }
        good = [one for one in stored if now[one] > NO_ADVANTAGE]
        weights = [now[one] ** self.priority for one in good]
        chosen = []
        for update in range(len(rollout.updates)):
            seed = derive_seed("self-imitation", self.seed, rollout.number, update)
            picked = drawn(good, weights, self.episodes_per_update, seed)
            chosen.append([ReplayedEpisode(one, self.weight * now[one]) for one in picked])
        return chosen

    def metrics(self) -> Mapping[str, float]:
        return {"weight": self.weight}

    def state_dict(self) -> dict[str, Any]:
        return {"returns": {place: list(values) for place, values in self.returns.items()}, "weight": self.weight}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.returns = {place: deque(of, maxlen=_BASELINE_SIZE) for place, of in state_dict["returns"].items()}
        self.weight = float(state_dict["weight"])
