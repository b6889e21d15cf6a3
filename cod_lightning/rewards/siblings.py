"""Parts of a reward that see siblings together: episodes of a pack at one place in the lifecycle, once all of the group have ended.

They are in training alone: in validation and suites a pack has one lifecycle, so that there is nothing to compare.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence

from msgspec import structs

from cod_lightning.errors import EngineRefused, RewardFailure
from cod_lightning.rewards.base import RewardPart, Rewards, bounded, number, summed
from cod_lightning.types import Episode, EpisodeKind, Group, Task


class SiblingReward(RewardPart):
    """A part that compares the episodes of siblings.

    The context mechanism, and the update after a task, see the reward without it: they come before the comparison.
    """

    @abstractmethod
    async def __call__(self, episodes: Sequence[Episode], task: Task) -> Sequence[float | None]:
        """A score for each of at least two episodes of one kind and task, in the order of siblings; None: no score for this one.

        Episodes that failed are left out. What is said at `Reward.__call__` of calls at the same time holds here, too. Whatever
        this raises, or a score that is no finite number, makes the rewards of all these episodes missing.
        """


async def compared(group: Group, rewards: Rewards, limit_s: float | None = None) -> Group:
    """The group, each reward with the parts that compare siblings; missing where a part is. Later episodes keep theirs.

    Each part may take `limit_s` seconds at one place in the lifecycle. Only `EngineRefused` ends the run.
    """
    parts = {name: part for name, part in rewards.items() if isinstance(part, SiblingReward)}
    if not parts:
        return group
    places = zip(*(lifecycle.episodes for lifecycle in group.lifecycles), strict=True)
    played = await asyncio.gather(*(_at_place(place, group.pack.tasks, parts, limit_s) for place in places))
    lifecycles = zip(group.lifecycles, zip(*played, strict=True), strict=True)
    return structs.replace(group, lifecycles=tuple(structs.replace(one, episodes=own) for one, own in lifecycles))


async def _at_place(
    episodes: Sequence[Episode], tasks: Sequence[Task], parts: Mapping[str, SiblingReward], limit_s: float | None
) -> list[Episode]:
    """The siblings' episodes with these parts."""
    kind, task = episodes[0].kind, tasks[episodes[0].position]
    known = [episode for episode in episodes if episode.reward is not None]
    asked = {name: part for name, part in parts.items() if kind in part.kinds}
    if not asked or not known:
        return list(episodes)
    found = await asyncio.gather(
        *(bounded(name, limit_s, _weighted(part, known, task)) for name, part in asked.items())
    )
    if refused := next((one for one in found if isinstance(one, EngineRefused)), None):
        raise refused
    scored, own = [], "world" if kind is EpisodeKind.SOLVE else "context"
    for index, episode in enumerate(known):
        assert episode.reward is not None
        scores, failures = dict(episode.parts or {own: episode.reward}), []
        for name, of_part in zip(asked, found, strict=True):
            score = of_part[index] if isinstance(of_part, list) else of_part
            if isinstance(score, float):
                scores[name] = score
            else:
                failures.append(RewardFailure(f"{name} gave this sibling no score") if score is None else score)
        scored.append(summed(episode, scores, failures))
    rest = iter(scored)
    return [episode if episode.reward is None else next(rest) for episode in episodes]


async def _weighted(part: SiblingReward, episodes: Sequence[Episode], task: Task) -> list[float | None]:
    if len(episodes) < 2:
        raise ValueError("no sibling is left to compare with")
    scores = list(await part(episodes, task))
    if len(scores) != len(episodes):
        raise ValueError(f"{len(scores)} scores for {len(episodes)} siblings")
    return [None if score is None else part.weight * number(score) for score in scores]
