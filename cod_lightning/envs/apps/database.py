"""A typed database in memory: immutable rows in tables that are replaced, never changed, so that a copy is a dict of references."""

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace


class TableRow(Struct, frozen=True, kw_only=True):
    """One record; its class is its table."""

    id: int = 0
    """Given by the database, and never twice."""


R = TypeVar("R", bound=TableRow)


class Change(NamedTuple):
    """What became of one row; at most one of the two is None."""

    before: TableRow | None
    after: TableRow | None


def noun(one: type[TableRow] | Change) -> str:
    """`PaymentRequest` as `payment request`; of a change, its row's."""
    kind = one if isinstance(one, type) else type(one.before if one.after is None else one.after)
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in kind.__name__).strip()


class Database:
    """Rows by class and id.

    >>> class Pen(TableRow, frozen=True, kw_only=True):
    ...     colour: str
    >>> before = Database()
    >>> pen = before.add(Pen(colour="red"))
    >>> after = before.copy()
    >>> _ = after.put(Pen(id=pen.id, colour="blue"))
    >>> before.get(Pen, pen.id).colour, len(after.changes(before))
    ('red', 1)
    """

    __slots__ = ("next_id", "tables")

    def __init__(self, tables: dict[type[TableRow], dict[int, TableRow]] | None = None, next_id: int = 1) -> None:
        self.tables = dict(tables or {})
        self.next_id = next_id

    def copy(self) -> "Database":
        """A snapshot; costs as much as it has tables."""
        return Database(self.tables, self.next_id)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Database":
        return self.copy()

    def all(self, kind: type[R]) -> Iterable[R]:
        """The rows of a class, oldest first."""
        return cast(Iterable[R], self.tables.get(kind, {}).values())

    def get(self, kind: type[R], id: int) -> R | None:
        """The row with this id, if there is one."""
        return cast(R | None, self.tables.get(kind, {}).get(id))

    def add(self, row: R) -> R:
        """The row as it was stored, with an id of its own."""
        row = replace(row, id=self.next_id)
        self.next_id += 1
        return self.put(row)

    def put(self, row: R) -> R:
        """Store the row in place of the one with its id."""
        self.tables[type(row)] = {**self.tables.get(type(row), {}), row.id: row}
        return row

    def remove(self, row: TableRow) -> None:
        """Take the row out."""
        self.tables[type(row)] = {id: other for id, other in self.tables[type(row)].items() if id != row.id}

    def changes(self, before: "Database") -> list[Change]:
        """All rows that differ from an earlier state, tables that are the same object left out."""
        found: list[Change] = []
        for kind in {**before.tables, **self.tables}:
            old, new = before.tables.get(kind, {}), self.tables.get(kind, {})
            if old is not new:
                ids = {**old, **new}
                found += [Change(old.get(id), new.get(id)) for id in ids if old.get(id) != new.get(id)]
        return found
