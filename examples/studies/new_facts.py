"""A bonus for what an episode found out that its context did not hold; measured in `signals.py`, and worse than none."""

import regex

from cod_lightning.rewards import Reward
from cod_lightning.types import Episode, Task

_PATTERN_S = 1.0
"""For a pattern to read a text that the policy wrote."""


class NewFacts(Reward):
    """A bonus for each different fact that the environment showed in a task and that the context did not hold: for exploration.

    Facts are what a pattern finds in observations and in the feedback, such as `[0-9]=[a-z]+`. A fact that the context holds in the
    same words earns nothing again, so that the bonus ends once facts are noted.

    Args:
        pattern: A regular expression.
        bonus: For one fact.
        weight: Factor of this part.
    """

    def __init__(self, pattern: str, bonus: float = 0.05, weight: float = 1.0) -> None:
        self.pattern, self.bonus, self.weight = regex.compile(pattern), bonus, weight

    async def __call__(self, episode: Episode, task: Task) -> float:
        seen = " ".join([*(turn.observation for turn in episode.turns), episode.feedback])
        shown, known = (
            {one[0] for one in self.pattern.finditer(text, timeout=_PATTERN_S)}
            for text in (seen, episode.context_before)
        )
        return self.bonus * len(shown - known)
