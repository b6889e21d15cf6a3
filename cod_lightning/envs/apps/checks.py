"""Checks that compare the final state with the rows that a task must have changed, and allow nothing else."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from cod_lightning.envs.apps.database import Change, Database, TableRow, noun
from cod_lightning.envs.apps.schema import Card
from cod_lightning.envs.apps.templates.base import Truth


@dataclass(frozen=True)
class Check:
    """One condition on the final state."""

    about: str
    """As the words after a task name it."""
    passed: bool
    wrong: tuple[str, ...] = ()
    """Columns that are not as they should be; `answer` for an answer."""
    asked: bool = True
    """Whether the task asks for it; False for what holds of any task: nothing else changes, and it is ended."""


def checks(
    expected: Truth, after: Database, answer: str, finished: bool, replies: Sequence[tuple[str, Database]] = ()
) -> list[Check]:
    """One check for every row that has to change, for the answer, for a confirmation, for nothing else, and for the end.

    `replies` are the person's, each with the state at which it was given.
    """
    made, found = _told_apart(expected, after)
    results = [_check(before, wanted, made.get(n)) for n, (before, wanted) in enumerate(expected.changes)]
    if expected.answer is not None:
        right = " ".join(answer.split()).lower() == expected.answer.lower()
        results.append(Check("the answer", right, () if right else ("answer",)))
    if expected.agreed is not None:
        results.append(Check("I had confirmed it before money moved", _agreed(expected, replies), asked=False))
    others = sorted({noun(one) for one in found})
    results.append(Check(f"nothing else changes{': ' + ', '.join(others) if others else ''}", not found, asked=False))
    results.append(Check("the task is ended with user.done", finished, asked=False))
    return results


def _agreed(expected: Truth, replies: Sequence[tuple[str, Database]]) -> bool:
    """Whether the person has named the number while all cards were as before."""
    cards = expected.before.tables.get(Card)
    return any(expected.agreed in re.findall(r"\d+", said) and db.tables.get(Card) == cards for said, db in replies)


def _told_apart(expected: Truth, after: Database) -> tuple[dict[int, Change], list[Change]]:
    """What was made of each change that is asked for, by its number, and all other changes."""
    found = after.changes(expected.before)
    made: dict[int, Change] = {}
    for closest in (_same, _closest):  # what is exactly right first, so that it counts for nothing else
        for n, (before, wanted) in enumerate(expected.changes):
            if n not in made and (mine := closest(before, wanted, found)) is not None:
                made[n] = mine
                found.remove(mine)
    return made, found


def _same(before: TableRow | None, wanted: TableRow | None, found: Sequence[Change]) -> Change | None:
    """The change that is just as wanted; the id of a new row does not count."""
    for one in found:
        after = one.after if one.after is None or before is not None else replace(one.after, id=0)
        if one.before == before and after == wanted:
            return one
    return None


def _closest(before: TableRow | None, wanted: TableRow | None, found: Sequence[Change]) -> Change | None:
    """The change of the same row, or, of a new row, the one in which most columns are as wanted."""
    if before is not None:
        return next((one for one in found if one.before == before), None)
    news = [one for one in found if one.before is None and type(one.after) is type(wanted)]
    return min(news, key=lambda one: len(_wrong(one.after, wanted)), default=None)


def _wrong(got: TableRow | None, wanted: TableRow | None) -> tuple[str, ...]:
    """Columns in which a row is not the other; all where there is none."""
    names = [name for name in (wanted or got).__struct_fields__ if name != "id"]  # pyright: ignore[reportOptionalMemberAccess]
    return tuple(name for name in names if got is None or wanted is None or getattr(got, name) != getattr(wanted, name))


def _check(before: TableRow | None, wanted: TableRow | None, made: Change | None) -> Check:
    what = noun(Change(before, wanted))
    if wanted is None:
        return Check(f"a {what} is gone", made is not None and made.after is None)
    wrong = _wrong(before if made is None else made.after, wanted)
    how = "new" if before is None else "changed"
    return Check(f"a {what} is {how}{': ' + ', '.join(wrong) if wrong else ''}", not wrong, wrong)
