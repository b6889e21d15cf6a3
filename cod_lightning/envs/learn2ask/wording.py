"""What every rendering of Learn2Ask does: tasks into words, responses into answers, scores into feedback."""

import re
from abc import abstractmethod
from dataclasses import dataclass

from cod_lightning.envs.learn2ask.clinic import ClinicTask
from cod_lightning.envs.learn2ask.protocol import Facts, ProtocolTable
from cod_lightning.envs.learn2ask.scoring import Scores
from cod_lightning.envs.task_world import WorldWording

STOP = "<stop />"
STOP_TAG = re.compile(r"<stop ?/>")


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
    """All that feedback may tell of a task that has ended."""

    outcome: str
    """right, near, wrong (questions where one was due), early, late, stopped (rightly), malformed."""
    scores: Scores
    fusion: str
    points: float
    best: float
    learnt: Facts
    """What this task gives away of the hidden protocol."""
    note: str = ""
    complaint: str = ""


class AnswerWording(WorldWording):
    """How tasks and answers are put into words."""

    @abstractmethod
    def read(self, response: str) -> ReadAnswer:
        """What a response says."""

    @abstractmethod
    def feedback(self, judged: Judged) -> str:
        """Words after the task."""

    @abstractmethod
    def warning(self, complaint: str) -> str:
        """Words after a first unreadable answer where that is not the end."""


class ClinicWording(AnswerWording):
    """How the clinic is put into words."""

    @property
    @abstractmethod
    def facts(self) -> ProtocolTable:
        """How facts about the protocol are spelled."""

    @abstractmethod
    def rules(self, task: ClinicTask) -> str:
        """System text."""

    @abstractmethod
    def observation(self, task: ClinicTask) -> str:
        """The dialogue so far."""

    @abstractmethod
    def respond(self, name: str | None) -> str:
        """A well-formed response that asks for an item, or stops."""

    @abstractmethod
    def told_in(self, observation: str) -> tuple[str, ...]:
        """Items that a dialogue tells, read back."""

    @abstractmethod
    def learnt_from(self, messages: str) -> tuple[str, str]:
        """The text of an update episode, cut where the last feedback begins to tell what it shows."""
