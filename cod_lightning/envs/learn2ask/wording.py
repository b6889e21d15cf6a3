"""Answers, their scores, and what every rendering does: tasks into words, responses into answers, scores into feedback."""

import re
from dataclasses import dataclass

from cod_lightning.envs.learn2ask.protocol import Facts

STOP = "<stop />"
STOP_TAG = re.compile(r"<stop ?/>")
BEST = 4.0
"""The largest number of points; the smallest is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Action (0 or 1), content and format (0, 0.5 or 1); all are 0 where the action is wrong."""

    action: float
    content: float
    format: float

    @property
    def points(self) -> float:
        """The reward before it is normalised: the reference's fusion Ra+Rs, action * (1 + 2 * content) + format.

        >>> Scores(action=1, content=0.5, format=1).points
        3.0
        """
        return self.action * (1 + 2 * self.content) + self.format


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
    """right, near, wrong (questions where one was due, with content 1, 0.5, 0), early (a stop where one was due), late (a question
    where none was), stopped (rightly), malformed."""
    scores: Scores
    revealed: Facts
    """What this task reveals of the hidden protocol."""
    note: str = ""
    complaint: str = ""
