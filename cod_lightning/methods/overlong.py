"""A penalty for responses that come near their limit."""

from cod_lightning.errors import ConfigError
from cod_lightning.ranges import Count, Natural, NonNegative
from cod_lightning.rewards import Reward
from cod_lightning.types import Episode, EpisodeKind, Task


class OverlongReward(Reward):
    """Minus `penalty` times a ramp of the episode's longest response: 0 up to `zero_tokens`, 1 from `full_tokens` on.

    It also falls on episodes without a reward, unlike `LengthReward`.

    Source: the soft overlong punishment of DAPO (arXiv 2503.14476, eq. 13), there with `full_tokens` the most tokens of a response,
    `zero_tokens` 4,096 below it, and the penalty 1. What differs: an episode has many responses, of which the longest counts.

    Args:
        zero_tokens: Tokens of a response up to which it costs nothing.
        full_tokens: Tokens of a response from which it costs all; data.max_new_tokens is a good one.
        penalty: What the longest response costs at most.
        weight: Factor of this part.
    """

    kinds = frozenset(EpisodeKind)

    def __init__(
        self, zero_tokens: Natural, full_tokens: Count, penalty: NonNegative = 1.0, weight: float = 1.0
    ) -> None:
        if full_tokens <= zero_tokens:
            expected = f"above zero_tokens={zero_tokens}"
            raise ConfigError("data.rewards.OverlongReward.full_tokens", full_tokens, expected, "Raise it.")
        self.zero_tokens, self.full_tokens, self.penalty, self.weight = zero_tokens, full_tokens, penalty, weight

    async def __call__(self, episode: Episode, task: Task) -> float:
        longest = max((len(turn.action_ids) for turn in episode.turns), default=0)
        ramp = (longest - self.zero_tokens) / (self.full_tokens - self.zero_tokens)
        return 0.0 - self.penalty * min(1.0, max(0.0, ramp))
