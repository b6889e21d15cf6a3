"""Worlds whose tasks are one question each: it is shown, answered in tags, and graded."""

import random
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.base import HiddenRules, Players, Reference, TextPolicy, Unchanging
from cod_lightning.envs.task_world import TaskWorld
from cod_lightning.ranges import Count
from cod_lightning.types import Message, Pack

MOST_LETTERS = 20_000
"""Of an answer; a longer one is malformed."""


class Grade(NamedTuple):
    """What an answer is worth."""

    score: float
    """0 to 1, which is right."""
    remark: str = ""
    """A sentence on what was wrong, for the feedback; never the answer."""
    malformed: bool = False
    """Whether the answer is not of the form that the rules ask for."""
    verdict: str = "That is wrong."
    """What is said of a lower score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionTask(Unchanging):
    """A question and how it is graded."""

    question: str
    key: str
    """As JSON: what the world grades by."""
    group: str = ""
    """Name of its group, whose questions share something; empty where there are no groups."""


class _Noteless(TextPolicy):
    def note(self, messages: Sequence[Message], rng: random.Random) -> str:
        return ""


@dataclass(frozen=True)
class AnswerKey(_Noteless):
    """Answers each question of a pack from a list."""

    answers: dict[str, str]

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        """Something else may stand above the question."""
        asked = max(filter(messages[1].content.endswith, self.answers), key=len)
        return f"<answer>{self.answers[asked]}</answer>"


@dataclass(frozen=True)
class AnyAnswer(_Noteless):
    """Gives the answer of any question of the list, whatever is asked."""

    answers: tuple[str, ...]

    def act(self, messages: Sequence[Message], rng: random.Random) -> str:
        return f"<answer>{rng.choice(self.answers)}</answer>"


class QuestionPlayers(Players["QuestionWorld"]):
    """Who plays questions."""

    def reference(self, kind: Reference, pack: Pack) -> TextPolicy:
        """Random: answers of the pack's questions in any order. Oracle: the right ones. What a script could learn from
        questions that it cannot read is nothing, so there is no scripted one."""
        right = {(spec := self.env._spec(task)).question: self.env.right_answer(spec) for task in pack.tasks}
        answers = {question: answer for question, answer in right.items() if answer is not None}
        if kind is Reference.SCRIPTED or len(answers) < len(right):
            return super().reference(kind, pack)
        return AnyAnswer(tuple(answers.values())) if kind is Reference.RANDOM else AnswerKey(answers)


class QuestionRules(HiddenRules["QuestionWorld"]):
    """What packs of questions hide."""

    def hidden_rule(self, pack: Pack) -> str:
        """The group's; without groups nothing that they have in common."""
        return self.env._spec(pack.tasks[0]).group or pack.id


class QuestionWorld(TaskWorld[QuestionTask]):
    """Shows a question, grades the answer between the tags, and says what was wrong.

    Args:
        name: Identity, part of every pack id.
        rules: System text, what is between the tags included.
        max_turns: Answers to a question; after a wrong one that is not the last, the next may be given.
        feedback: Whether the last words of a task name the right answer (answer), or only the verdict (verdict).
    """

    companions = (QuestionPlayers, QuestionRules)

    task_type = QuestionTask
    late = None

    def __init__(
        self, name: str, rules: str, max_turns: Count = 1, feedback: Literal["answer", "verdict"] = "answer"
    ) -> None:
        self.name, self._rules, self.max_turns, self.feedback = name, rules, max_turns, feedback
        self._start(QuestionTask(question="", key="null"))

    @property
    def rules(self) -> str:
        return self._rules

    @abstractmethod
    def grade(self, answer: str, task: QuestionTask) -> Grade:
        """What the text between the tags is worth."""

    @abstractmethod
    def right_answer(self, task: QuestionTask) -> str | None:
        """An answer that is right, fit to be shown; None where the key gives none."""

    def _acted(self, action: str) -> str:
        answer, complaint = answer_of(action)
        complaint = complaint or self._too_long(answer)
        self._grade = Grade(0.0, complaint, malformed=True) if complaint else self.grade(answer, self._task)
        self._answers += 1
        outcome = self._outcome_of(self._grade)
        return "" if outcome == "miss" and self._answers < self.max_turns else outcome

    @staticmethod
    def _too_long(answer: str) -> str:
        return f"the answer has more than {MOST_LETTERS:,} letters" if len(answer) > MOST_LETTERS else ""

    def _outcome_of(self, grade: Grade) -> str:
        return "malformed" if grade.malformed else "win" if grade.score >= 1 else "miss"

    def _feedback(self) -> str:
        assert self._grade is not None
        if self._outcome == "malformed":
            return f"Your answer could not be read: {self._grade.remark.rstrip('.')}. The task is over."
        if self._outcome == "win":
            return "That is right."
        right = self.right_answer(self._task) if self.feedback == "answer" else None
        return _said(self._grade) + ("" if right is None else f" A right answer is {right}")

    def _reward(self) -> float:
        return 0.0 if self._grade is None or self._grade.malformed else self._grade.score

    def _start(self, task: QuestionTask) -> None:
        self._task, self._answers = task, 0
        self._grade: Grade | None = None

    def _observed(self) -> str:
        if self._grade is None:
            return self._task.question
        return f"{_said(self._grade)} Answers left: {self.max_turns - self._answers}."


def _said(grade: Grade) -> str:
    return " ".join(filter(None, (grade.verdict, grade.remark)))


def series_rules(what: str) -> str:
    """The first sentences of the rules, where a world states none of its own: what is asked, and that it belongs together."""
    return (
        f"You get {what}. Those of one series have something in common that nobody states: what you find out with one may help "
        "with the next."
    )


def answer_form(what: str) -> str:
    """The last sentence of the rules: how to answer.

    >>> answer_form("A NUMBER")
    'Answer with brief reasoning, then exactly one answer in this form:\\n<answer>A NUMBER</answer>'
    """
    return f"Answer with brief reasoning, then exactly one answer in this form:\n<answer>{what}</answer>"
