"""Rewards of the form of an answer: whether it parsed, and what its text holds."""

import re
from typing import Literal

import regex

from cod_lightning.errors import ConfigError
from cod_lightning.ranges import NonNegative
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
