"""What an answer is worth: the interface of a judge of questions, and a judge by plain rules that needs no network."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from cod_lightning.envs.answers import quoted
from cod_lightning.envs.learn2ask.clinic import ClinicTask, content_of, turns_of
from cod_lightning.envs.learn2ask.items import BY_NAME, BY_TITLE, named_items
from cod_lightning.envs.learn2ask.protocol import Facts
from cod_lightning.envs.learn2ask.records import RecordTask
from cod_lightning.envs.learn2ask.wording import WRONG, Judged, ReadAnswer, Scores

Dialogue = Sequence[tuple[str, str]]
"""(role, text) in order; the role is user (the patient) or assistant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeVerdict:
    """The scores of a question."""

    format: float
    """1 for one clear question, 0.5 for two, 0 for none or more."""
    content: float
    """1 for a direct question about something missing, 0.5 for a highly relevant one, else 0."""
    note: str = ""
    """One line for the policy; must not name what is missing."""


class Judge(ABC):
    """Scores questions; stateless. Never called where the right answer is to stop."""

    blocking: bool = False
    """Whether it waits for a network."""

    @abstractmethod
    def score(self, dialogue: Dialogue, question: str, missing: Sequence[str]) -> JudgeVerdict:
        """The verdict on a question (at most 1000 characters of a policy's text: data, never an instruction).

        Raises `EnvironmentFailure` where no verdict can be had: the episode then fails and its reward is missing.
        """


class RuleJudge(Judge):
    """Counts question marks and answer choices, and looks for the words of missing items.

    Format: 1 for one question mark, 0.5 for two, 0 for none or more; at most 0.5 without two to four answer choices, which the
    reference asks for (two or three) but leaves to its judge.
    Content, where all missing items are the synthetic clinic's: `clinic.content_of` the items that the question names in front
    of its choices. Otherwise the best over missing items, by the share of an item's words that the question holds: 1 from a half
    on, 0.5 for any, 0 for none; a question of more than 30 different words gets at most 0.5.
    """

    def score(self, dialogue: Dialogue, question: str, missing: Sequence[str]) -> JudgeVerdict:
        form, note = format_of(question)
        known = [item for title in missing if (item := BY_TITLE.get(title))]
        if len(known) == len(missing):
            content = content_of(asked_items(question), tuple(item.name for item in known))
        else:
            content = max((_overlap(question, item) for item in missing), default=0.0)
        return JudgeVerdict(format=form, content=content, note=note)


def asked_items(question: str) -> tuple[str, ...]:
    """Items named in front of the answer choices of the first question; of the whole text, if none is named there.

    >>> asked_items("Do you have an allergy: none, to a food or to a drug?")
    ('allergy',)
    """
    return named_items(re.split("[:(?\uff1f\uff1a]", question, maxsplit=1)[0]) or named_items(question)


def format_of(question: str) -> tuple[float, str]:
    """(format score, a line that says why it is not 1).

    >>> format_of("Do you have a fever: no, slight or high?")
    (1.0, '')
    >>> format_of("Fever? Pain?")
    (0.5, 'two questions, one was allowed; answer choices are missing')
    """
    marks = len(re.findall("[?\uff1f]", question))
    score = {1: 1.0, 2: 0.5}.get(marks, 0.0)
    count = {0: "no question mark", 1: ""}.get(marks, f"{'two' if marks == 2 else marks} questions, one was allowed")
    choices = num_choices(question)
    offered = "" if 2 <= choices <= 4 else "answer choices are missing" if choices < 2 else "too many answer choices"
    return min(score, 0.5) if offered else score, "; ".join(filter(None, (count, offered)))


def num_choices(question: str) -> int:
    """Answers that a question offers: lettered or numbered ones, else parts joined by "or" or a slash, and by commas before.

    >>> num_choices("How is it: low, normal or high?"), num_choices("A) yes B) no"), num_choices("Any fever?")
    (3, 2, 0)
    """
    if (lettered := len(re.findall(r"(?:^|[\s(])[A-Ea-e1-5][.)\uff0e\u3001]", question))) >= 2:
        return lettered
    offered = re.split("[:(\uff1a]", question, maxsplit=1)[-1]
    joints = len(re.findall(r"\bor\b|/|\u8fd8\u662f", offered))
    return joints + 1 + len(re.findall("[,\u3001\uff0c](?! *or\\b)", offered)) if joints else 0


_DULL = frozenset(
    re.findall(
        r"\w+", "a an and any are at by do does for from have how in is it of on or some the there to with you your"
    )
)
_WORDS = re.compile(r"[a-z0-9]+|[\u3400-\u9fff]+")


def _terms(text: str) -> frozenset[str]:
    """Words without endings; of scripts without spaces, pairs of letters."""
    found: set[str] = set()
    for word in _WORDS.findall(text.lower()):
        if word.isascii():
            found.update({word.removesuffix("s").removesuffix("e")} - _DULL)
        else:
            found.update(word[i : i + 2] for i in range(max(1, len(word) - 1)))
    return frozenset(found)


def _overlap(question: str, item: str) -> float:
    wanted, asked = _terms(item.rpartition(":")[2]), _terms(question)
    share = len(wanted & asked) / max(1, len(wanted))
    if not share:
        return 0.0
    return 1.0 if share >= 0.5 and len(asked) <= _LONG else 0.5


_LONG = 30
"""Different words of a question from which on naming an item no longer counts as asking for it directly."""


AnyTask = ClinicTask | RecordTask


def graded(task: AnyTask, answer: ReadAnswer, judge: Judge | None) -> Judged:
    """What the answer is worth. Without a judge the question is an item's name, and its form is right.

    Raises `EnvironmentFailure` where the judge does.
    """
    scores, note = WRONG, ""
    if answer.complaint:
        outcome = "malformed"
    elif answer.stops != (task.label == "stop"):
        outcome = "early" if answer.stops else "late"
    elif answer.stops:
        outcome, scores = "stopped", Scores(action=1.0, content=1.0, format=1.0 if answer.exact else 0.0)
    else:
        form, content, note = _verdict(task, answer, judge)
        outcome = "right" if content == 1 else "near" if content > 0 else "wrong"
        scores = Scores(action=1.0, content=content, format=form)
    shown = _revealed(task, outcome, answer)
    return Judged(outcome=outcome, scores=scores, revealed=shown, note=note, complaint=answer.complaint)


def _revealed(task: AnyTask, outcome: str, answer: ReadAnswer) -> Facts:
    """What the feedback reveals of a hidden protocol; nothing for prepared dialogues.

    Where something is missing: one required item (the one asked for if it is missing, unless the question names several), and
    that a single item asked for is not required, if so. Where nothing is missing: that no untold item is required.
    """
    if isinstance(task, RecordTask) or outcome == "malformed":
        return {}
    if not task.missing:
        return dict.fromkeys(task.unmentioned, False)
    asked = answer.asked if len(answer.asked) == 1 else ()
    wanted = next((name for name in asked if name in task.missing), task.missing[0])
    return {wanted: True} | {name: False for name in asked if name in task.priority and name not in task.required}


def _verdict(task: AnyTask, answer: ReadAnswer, judge: Judge | None) -> tuple[float, float, str]:
    """(format, content, note); a note that names a missing item is dropped."""
    if judge is None:
        return 1.0, content_of(answer.asked, task.missing), ""
    if isinstance(task, ClinicTask):
        dialogue, titles = turns_of(task), tuple(BY_NAME[name].title for name in task.missing)
    else:
        dialogue, titles = task.turns, task.missing
    verdict = judge.score(dialogue, answer.question, titles)
    leaks = any(title.rpartition(":")[2].strip().lower() in verdict.note.lower() for title in titles)
    return verdict.format, verdict.content, "" if leaks or not verdict.note else quoted(verdict.note, 300)
