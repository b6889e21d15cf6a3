"""Replay where siblings all do equally well, so that a pack of the rollout has nothing to teach."""

import math
from collections.abc import Mapping, Sequence

from cod_lightning.credit.credited import NO_ADVANTAGE
from cod_lightning.ranges import Count, NonNegative
from cod_lightning.seeds import derive_seed
from cod_lightning.training.packs import without_visit
from cod_lightning.training.replay import RecordedEpisode, RecordedRollout, Replay, ReplayedEpisode, drawn


class SignalReplay(Replay):
    """For every pack without signal in an update, stored episodes join the update, with the advantages that they had.

    If the same pack was played before, whatever brought it back, and a lifecycle did better then, those of its episodes whose
    returns are above those of now join: of several such lifecycles the one with the largest sum of advantages. Else all
    stored episodes of another pack join, drawn with probabilities in proportion to (mean size of its advantages) ** priority.

    Source: ARPO (arXiv 2505.16282), whose tasks come again in every epoch: it stores successful trajectories by task and puts
    one in place of a failed one where all siblings of a task fail. What differs: the stored lifecycle joins, so that no sibling is
    taken out and theirs remain without advantage; packs that never come again, as those of `source=Uniform`, are replaced by
    others; a pack in which all siblings succeed has no signal either.

    Args:
        priority: Exponent of the mean size of advantages in the probability to be drawn; 0 draws all packs alike.
        max_episodes: Most episodes that are stored.
        max_tokens: Most tokens that are stored.
        max_age: Policy versions that a stored episode may be behind.
    """

    def __init__(
        self,
        priority: NonNegative = 0.6,
        max_episodes: Count = 2048,
        max_tokens: Count = 1_000_000,
        max_age: Count = 10,
    ) -> None:
        super().__init__(max_episodes, max_tokens, max_age)
        self.priority = priority

    def choose(
        self, stored: Sequence[RecordedEpisode], rollout: RecordedRollout
    ) -> Sequence[Sequence[ReplayedEpisode]]:
        """A stored pack joins an update once at most."""
        packs: dict[str, list[RecordedEpisode]] = {}
        for one in stored:
            packs.setdefault(without_visit(one.pack_id), []).append(one)
        now: dict[str, dict[str, float]] = {}
        for one in rollout.episodes:
            now.setdefault(without_visit(one.pack_id), {})[one.place] = one.group_return
        chosen: list[list[ReplayedEpisode]] = []
        for update, share in enumerate(rollout.updates):
            silent = [rollout.packs[g] for g in share if g in rollout.without_signal and g in rollout.packs]
            names = list(map(without_visit, silent))
            again = {name: better for name in names if (better := _better(packs.get(name, ()), now.get(name, {})))}
            joining = [one for of_pack in again.values() for one in of_pack]
            others = [name for name in packs if name not in again]
            sizes = [sum(abs(one.advantage) for one in packs[name]) / len(packs[name]) for name in others]
            seed = derive_seed("signal replay", self.seed, rollout.number, update)
            weights = [size**self.priority for size in sizes]
            for name in drawn(others, weights, len(names) - len(again), seed):
                joining += packs[name]
            chosen.append([ReplayedEpisode(one, one.advantage) for one in joining])
        return chosen


def _better(stored: Sequence[RecordedEpisode], now: Mapping[str, float]) -> list[RecordedEpisode]:
    """Episodes of the best stored lifecycle of a pack that did better than its siblings do now, by place; none if none did."""
    lives: dict[tuple[int, str, int], list[RecordedEpisode]] = {}
    for one in stored:
        gain = one.episode_return - now.get(one.place, math.inf)
        if min(gain, one.advantage) > NO_ADVANTAGE:
            lives.setdefault((one.rollout, one.pack_id, one.sibling), []).append(one)
    return max(lives.values(), key=lambda life: sum(one.advantage for one in life), default=[])
