"""Rewards of the form of an answer: whether it parsed, and how long it was."""

import re
from typing import Literal

import regex

from cod_lightning.errors import ConfigError
from cod_lightning.ranges import Count, NonNegative
from cod_lightning.rewards.base import Reward
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Task

_FIELD = re.compile(r"\{([a-z_]+)\}")
_PATTERN_S = 1.0
"""For a pattern to read a text that the policy wrote; `re` cannot be interrupted."""


class FormatReward(Reward):
    """Minus a penalty for an answer that did not parse, or that ran out of turns or tokens; else 0.

    Args:
        malformed: Penalty of an episode whose text did not parse.
        truncated: Penalty of an episode whose turns, response length or window ran out.
        weight: Factor of this part.
    """

    def __init__(self, malformed: NonNegative = 0.1, truncated: NonNegative = 0.0, weight: float = 1.0) -> None:
        self.weight = weight
        self.penalties = {EpisodeStatus.MALFORMED: malformed, EpisodeStatus.TRUNCATED: truncated}

    async def __call__(self, episode: Episode, task: Task) -> float:
        return 0.0 - self.penalties.get(episode.status, 0.0)


class BrokenRule(Reward):
    """Minus a penalty for an episode that breaks a rule: a pattern is found in its responses, one under the other, or in the
    context that it leaves.

    Args:
        pattern: A regular expression. `{NAME}` in it stands for the field NAME of the task's spec, as in `Lever_{forbidden}<`.
        penalty: What breaking the rule costs; with `weight: 0` it costs nothing.
        kinds: Episodes that are looked at: of a solve the responses, of an update the context that it leaves.
        weight: Factor of this part.
    """

    def __init__(
        self,
        pattern: str,
        penalty: NonNegative = 1.0,
        kinds: list[Literal["solve", "update"]] | None = None,
        weight: float = 1.0,
    ) -> None:
        try:
            regex.compile(_FIELD.sub("x", pattern))
        except regex.error as error:
            expected = f"a regular expression ({error})"
            raise ConfigError("data.rewards.BrokenRule.pattern", pattern, expected, "Correct it.") from None
        self.pattern, self.penalty, self.weight = pattern, penalty, weight
        self.kinds = frozenset(EpisodeKind(kind) for kind in kinds or ("solve",))

    async def __call__(self, episode: Episode, task: Task) -> float:
        """Raises `AttributeError` where a task's spec has no such field, and `TimeoutError` after a second."""
        pattern = _FIELD.sub(lambda found: re.escape(str(getattr(task.spec, found[1]))), self.pattern)
        solved = episode.kind is EpisodeKind.SOLVE
        text = "\n".join(turn.response for turn in episode.turns) if solved else episode.context_after
        return -self.penalty if regex.search(pattern, text, timeout=_PATTERN_S) else 0.0


class LengthReward(Reward):
    """Minus `coefficient * (response_penalty + episode_penalty)` for an episode with a reward above 0, down to a sum of 0.

    The response penalty is the mean over turns of a linear ramp of the response's tokens, 0 up to `zero_tokens` and 1 from
    `full_tokens` on; the episode penalty is turns / `max_turns`. Source: the reward of the reference runs of arXiv 2606.20002,
    where the ramp is as good as off. Environments with a `length_penalty` of their own already count turns.

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
