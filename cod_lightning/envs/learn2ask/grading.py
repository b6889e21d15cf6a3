"""What an answer is worth, and what its feedback reveals."""

from cod_lightning.envs.answers import quoted
from cod_lightning.envs.learn2ask.clinic import ClinicTask, content_of, turns_of
from cod_lightning.envs.learn2ask.items import BY_NAME
from cod_lightning.envs.learn2ask.judge import Judge
from cod_lightning.envs.learn2ask.protocol import Facts
from cod_lightning.envs.learn2ask.records import RecordTask
from cod_lightning.envs.learn2ask.wording import WRONG, ReadAnswer, Scores

AnyTask = ClinicTask | RecordTask


def graded(task: AnyTask, answer: ReadAnswer, judge: Judge | None) -> tuple[str, Scores, str]:
    """(outcome, scores, the judge's note). Without a judge the question is an item's name, and its form is right.

    Outcomes: right, near, wrong (questions where one was due, with content 1, 0.5, 0), early (a stop where one was due), late (a
    question where none was), stopped (rightly), malformed. Raises `EnvironmentFailure` where the judge does.
    """
    if answer.complaint:
        return "malformed", WRONG, ""
    if answer.stops != (task.label == "stop"):
        return ("early" if answer.stops else "late"), WRONG, ""
    if answer.stops:
        return "stopped", Scores(action=1.0, content=1.0, format=1.0 if answer.exact else 0.0), ""
    form, content, note = _verdict(task, answer, judge)
    outcome = "right" if content == 1 else "near" if content > 0 else "wrong"
    return outcome, Scores(action=1.0, content=content, format=form), note


def revealed(task: AnyTask, outcome: str, answer: ReadAnswer) -> Facts:
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
    return {wanted: True} | {name: False for name in asked if name in task.items and name not in task.required}


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
