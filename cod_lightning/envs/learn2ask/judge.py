"""The interface of a judge of questions, and a judge by plain rules that needs no network."""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from cod_lightning.envs.learn2ask.clinic import content_of
from cod_lightning.envs.learn2ask.items import BY_TITLE, named_items

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
        """By rule; `dialogue` plays no part."""
        del dialogue
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
