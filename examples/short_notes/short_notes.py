"""A reward of one's own: notes that stay short are worth a little more."""

from cod_lightning.rewards import Reward
from cod_lightning.types import Episode, EpisodeKind, Task


class ShortNotes(Reward):
    """1 for empty notes, 0 from `most` letters on, linear between.

    Args:
        most: Letters from which notes earn nothing.
        weight: Factor of this part.
    """

    kinds = frozenset({EpisodeKind.UPDATE})

    def __init__(self, most: int = 500, weight: float = 0.1) -> None:
        self.most, self.weight = most, weight

    async def __call__(self, episode: Episode, task: Task) -> float:
        """By the notes that the episode leaves."""
        return max(0.0, 1 - len(episode.context_after) / self.most)
