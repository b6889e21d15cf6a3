"""A penalty for long responses and long episodes, where they are paid."""

from cod_lightning.errors import ConfigError
from cod_lightning.ranges import Count, NonNegative
from cod_lightning.rewards.base import Reward
from cod_lightning.types import Episode, Task


class LengthReward(Reward):
    """Minus `coefficient * (response_penalty + episode_penalty)` for an episode with a reward above 0, down to a sum of 0.

    The response penalty is the mean over turns of a linear ramp of the response's tokens, 0 up to `zero_tokens` and 1 from
    `full_tokens` on; the episode penalty is turns / `max_turns`. Environments with a `length_penalty` of their own already count
    turns.

    Source: the reward of the reference runs of arXiv 2606.20002. What differs: the ramp, which is as good as off there, can be left
    out.

    Args:
        coefficient: c, 0.1 in the reference.
        zero_tokens: Tokens of a response up to which it costs nothing; null leaves the response penalty out.
        full_tokens: Tokens of a response from which it costs all; set together with zero_tokens.
        max_turns: Turns of a task at most; null leaves the episode penalty out.
        weight: Factor of this part.
    """

    def __init__(
        self,
        coefficient: NonNegative = 0.1,
        zero_tokens: int | None = None,
        full_tokens: int | None = None,
        max_turns: Count | None = None,
        weight: float = 1.0,
    ) -> None:
        if zero_tokens is None and full_tokens is None and max_turns is None:
            expected = "some bound, since otherwise nothing is penalised"
            raise ConfigError(
                "data.rewards.LengthReward.max_turns", None, expected, "Set it, or zero_tokens and full_tokens."
            )
        both = zero_tokens is not None and full_tokens is not None and 0 <= zero_tokens < full_tokens
        if not both and (zero_tokens, full_tokens) != (None, None):
            expected = f"above zero_tokens={zero_tokens}, which is at least 0"
            raise ConfigError("data.rewards.LengthReward.full_tokens", full_tokens, expected, "Set both or neither.")
        self.coefficient, self.max_turns, self.weight = coefficient, max_turns, weight
        self.zero_tokens, self.full_tokens = zero_tokens, full_tokens

    async def __call__(self, episode: Episode, task: Task) -> float:
        """At most 0, and at least minus the episode's own reward."""
        reward = episode.reward or 0.0
        if reward <= 0 or not episode.turns:
            return 0.0
        response_penalty = 0.0
        if self.zero_tokens is not None and self.full_tokens is not None:
            width = self.full_tokens - self.zero_tokens
            ramps = [(len(turn.action_ids) - self.zero_tokens) / width for turn in episode.turns]
            response_penalty = sum(min(1.0, max(0.0, one)) for one in ramps) / len(ramps)
        episode_penalty = 0.0 if self.max_turns is None else len(episode.turns) / self.max_turns
        return max(0.0, reward - self.coefficient * (response_penalty + episode_penalty)) - reward
