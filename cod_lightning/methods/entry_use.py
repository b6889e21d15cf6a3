"""Reward of the use of a memory: a bonus for a task that was solved with an entry of the context."""

from collections.abc import Sequence

from cod_lightning.ranges import Positive
from cod_lightning.rewards.base import SiblingReward
from cod_lightning.types import EntryEventKind, Episode, Task


class EntryUse(SiblingReward):
    """A bonus for a solved task that used an entry of its context: a skill that it chose, a record that it was shown.

    The entry is one that the context held before the task. By `EpisodeCredit` the bonus reaches the update that wrote it, too, as
    all later rewards do. Where the mechanism shows all that it keeps (a hint, a notebook), every solved task earns it once the
    context is not empty. In training alone, since what was shown is known once the lifecycle has ended.

    Source: the skill-integrated reward of SAGE (arXiv 2512.17102), which pays the use of skills and their generation, in pairs of
    tasks. Differs: packs of any length, any mechanism with entries, and generation is paid by credit, not by a bonus of its own.

    Args:
        bonus: For one task, above 0.
        weight: Factor of this part.
    """

    def __init__(self, bonus: Positive = 0.5, weight: float = 1.0) -> None:
        self.bonus, self.weight = bonus, weight

    async def __call__(self, episodes: Sequence[Episode], task: Task) -> list[float]:
        return [self.bonus if episode.success and _used(episode) else 0.0 for episode in episodes]


def _used(episode: Episode) -> bool:
    return any(event.kind is EntryEventKind.SHOWN for event in episode.entries or ())
