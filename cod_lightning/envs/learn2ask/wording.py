"""Answers, their scores, and what every rendering does: tasks into words, responses into answers, scores into feedback."""

import re
from dataclasses import dataclass
from typing import Literal

from cod_lightning.envs.learn2ask.protocol import Facts

STOP = "<stop />"
STOP_TAG = re.compile(r"<stop ?/>")
Fusion = Literal["Ra+Rs", "sum", "Ra", "Rs"]
MAXIMA: dict[str, float] = {"Ra+Rs": 4.0, "sum": 3.0, "Ra": 3.0, "Rs": 4.0}
"""The largest reward of each fusion; the smallest is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Action (0 or 1), content and format (0, 0.5 or 1); all are 0 where the action is wrong."""

    action: float
    content: float
    format: float

    def fused(self, fusion: Fusion) -> float:
        """The reward before it is normalised.

        Ra+Rs: action * (1 + 2 * content) + format. sum: action + content + format. Ra: 2 * content + format.
        Rs: 3 * action + format.

        >>> Scores(action=1, content=0.5, format=1).fused("Ra+Rs")
        3.0
        """
        return {
            "Ra+Rs": self.action * (1 + 2 * self.content) + self.format,
            "sum": self.action + self.content + self.format,
            "Ra": 2 * self.content + self.format,
            "Rs": 3 * self.action + self.format,
        }[fusion]


WRONG = Scores(action=0.0, content=0.0, format=0.0)
"""Stopped where a question was due, asked where nothing was missing, or unreadable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswer:
    """What a response says, once read."""

    stops: bool = False
    exact: bool = False
    """Whether there is nothing but the stop tag."""
    question: str = ""
    asked: tuple[str, ...] = ()
    """Items that the question names."""
    complaint: str = ""
    """Which rule was broken; then nothing else is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """All that feedback may show of a task that has ended."""

    outcome: str
    """right, near, wrong (questions where one was due), early, late, stopped (rightly), malformed."""
    scores: Scores
    fusion: str
    points: float
    best: float
    revealed: Facts
    """What this task reveals of the hidden protocol."""
    note: str = ""
    complaint: str = ""
