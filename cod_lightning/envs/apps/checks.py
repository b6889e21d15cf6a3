"""What a task must have changed, as rows; checks compare the final state with that, and allow nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from msgspec.structs import asdict, replace

from cod_lightning.envs.apps.database import Change, Database, R, Row


@dataclass(frozen=True)
class Check:
    """One condition on the final state."""

    about: str
    """As the words after a task name it."""
    passed: bool
    column: str = ""


@dataclass
class Expected:
    """The changes that a task asks for, written down with the state before it."""

    before: Database
    changes: list[Change] = field(default_factory=list)
    answer: str | None = None
    """What the person wants to hear; None where nothing was asked."""

    def add(self, row: Row) -> None:
        """A new row; its id does not count."""
        self.changes.append(Change(None, row))

    def now(self, row: R) -> R:
        """The row as it shall be after the edits so far."""
        edited = (change.after for change in self.changes if change.before == row)
        return cast(R, next(edited, row))

    def edit(self, row: R, **values: Any) -> None:
        """Other values in a row, which may have been edited before."""
        before = self.before.get(type(row), row.id)
        after = replace(self.now(row), **values) if before == row else replace(row, **values)
        self.changes = [change for change in self.changes if change.before is None or change.before != before]
        self.changes.append(Change(before, after))

    def remove(self, row: Row) -> None:
        """A row less."""
        self.changes.append(Change(row, None))


def checks(expected: Expected, after: Database, answer: str, finished: bool) -> list[Check]:
    """One check for every column that has to change, one for nothing else, one for the answer, one for the end."""
    found = after.changes(expected.before)
    results: list[Check] = []
    for before, wanted in expected.changes:
        mine = _closest(before, wanted, found)
        if mine is not None:
            found.remove(mine)
        results += _columns(before, wanted, mine.after if mine else None, done=mine is not None)
    if expected.answer is not None:
        results.append(
            Check("the answer is right", " ".join(answer.split()).lower() == expected.answer.lower(), "answer")
        )
    others = sorted({type(one.after or one.before).__name__.lower() for one in found})
    results.append(Check(f"nothing else changed{': ' + ', '.join(others) if others else ''}", not found))
    results.append(Check("the task was ended with user.done", finished))
    return results


def _closest(before: Row | None, wanted: Row | None, found: Sequence[Change]) -> Change | None:
    """The change of the same row, or, of a new row, the one in which most columns are as wanted."""
    if before is not None:
        return next((one for one in found if one.before == before), None)
    news = [one for one in found if one.before is None and type(one.after) is type(wanted)]
    return max(news, key=lambda one: _alike(one.after, wanted), default=None)


def _alike(one: Row | None, other: Row | None) -> int:
    assert one is not None
    assert other is not None
    return sum(a == b for a, b in zip(asdict(one).values(), asdict(other).values(), strict=True))


def _columns(before: Row | None, wanted: Row | None, got: Row | None, *, done: bool) -> list[Check]:
    noun = type(wanted or before).__name__.lower()
    if wanted is None:
        return [Check(f"a {noun} is gone", done and got is None, "gone")]
    names = [name for name in wanted.__struct_fields__ if name != "id"]
    old = {} if before is None else asdict(before)
    changing = [name for name in names if before is None or old[name] != getattr(wanted, name)]
    rest = [name for name in names if name not in changing]
    kept = got is not None and all(getattr(got, name) == getattr(wanted, name) for name in rest)
    verb = "new" if before is None else "changed"
    return [
        Check(f"{name} of the {verb} {noun}", kept and getattr(got, name, None) == getattr(wanted, name), name)
        for name in changing
    ]
