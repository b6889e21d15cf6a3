"""The SQLite file of a deployed agent, row by row: nothing else knows how rows lie there.

Every row has a digest, and the number of rows is kept, so that a damaged file is refused and never taken for another life.
There is one file: of a journal that is written ahead (WAL), SQLite takes a damaged end for none, and a life would lose its last
tasks without a word.
"""

import hashlib
import json
import os
import sqlite3
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cod_lightning.errors import ConfigError, DataError, in_a_line
from cod_lightning.types import EpisodeKind

SCHEMA = 5
_TABLES = {
    "identity": "key TEXT PRIMARY KEY, value TEXT NOT NULL",
    "episodes": "id INTEGER PRIMARY KEY, task TEXT NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL, "
    "status TEXT NOT NULL, reward REAL, success INTEGER, context_version INTEGER NOT NULL, began REAL NOT NULL, "
    "ended REAL NOT NULL, content BLOB NOT NULL",
    "contexts": "version INTEGER PRIMARY KEY, episode INTEGER REFERENCES episodes (id), created REAL NOT NULL, "
    "reason TEXT NOT NULL, content BLOB NOT NULL",
}
"""Columns, to which the digest of the others is added; `content`, packed, is a record of an episode, or text and state of a
context."""
_OF_DAMAGE = (sqlite3.Error, ValueError, TypeError, LookupError, AttributeError, OverflowError, MemoryError)
_OF_DAMAGE += (RecursionError, AssertionError, zlib.error)  # of records that lie deep, or say what no episode says
_ONCE = {"episodes": ", UNIQUE (position, kind)"}
_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""With which a journal of several files ends."""
OWN = ("schema", "rows")
"""Keys of `identity` that the store keeps for itself; `rows` is how many each table has."""
_LONGEST = 2**28
"""Bytes of a record."""


class FolderRows:
    """The file at `path`. Every method raises `sqlite3.Error`, `ValueError` and the like for a damaged one: see `damage_named`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _see_own_journal(path)
        self.db = sqlite3.connect(path, isolation_level=None, timeout=10)
        for setting in ("synchronous=EXTRA", "foreign_keys=ON", "cell_size_check=ON"):
            self.db.execute(f"PRAGMA {setting}")

    def begin(self) -> None:
        """The tables of a new file; a transaction is open."""
        for table in _TABLES:
            self.db.execute(_made(table))
        nums = json.dumps({"identity": 2, "episodes": 0, "contexts": 0, "solved": 0})
        for key, value in zip(OWN, (str(SCHEMA), nums), strict=True):
            self._insert("identity", [key, value])

    def open(self) -> None:
        """Look at a file that is there. Raises `DataError` for one of another schema or kind."""
        items = self.db.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        row = None
        if ("table", "identity", _made("identity")) in items:
            row = self.db.execute("SELECT value FROM identity NOT INDEXED WHERE key = 'schema'").fetchone()
        if row is None or row[0] != str(SCHEMA):
            found = "no agent's tables" if row is None else f"schema {row[0]}"
            remedy = "Deploy it with the version that wrote it, or name another --state."
            raise DataError(f"{self.path} holds {found}; this version reads schema {SCHEMA}. {remedy}")
        # views, triggers and computed columns act as soon as a table is read or written
        for kind, name, sql in items:
            if not (sql == _made(name) if kind == "table" and name in _TABLES else kind == "index" and sql is None):
                raise DataError(f"{self.path} has a {kind}, {name!r:.40}, that is no agent's. Name another --state.")
        self.db.execute("PRAGMA journal_mode=DELETE")  # which stays with the file, so not of another program's
        list(self.all("identity"))
        # as many tasks are drawn before any is read
        self._see_all("solved", f"episodes WHERE kind = '{EpisodeKind.SOLVE}'", "solved tasks")

    def put(self, table: str, *row: Any) -> None:
        self._insert(table, row)
        self.count(table)

    def _insert(self, table: str, row: Sequence[Any]) -> None:
        marks = ", ".join("?" * (len(row) + 1))
        self.db.execute(f"INSERT INTO {table} VALUES ({marks})", (*row, _digest(table, row)))

    def _nums(self) -> dict[str, int]:
        """How many rows there are, by table; of episodes also how many are `solved` tasks."""
        found = self.db.execute("SELECT * FROM identity NOT INDEXED WHERE key = 'rows'").fetchall()
        return json.loads(_whole("identity", found[0])[1])

    def num(self, name: str) -> int:
        return self._nums()[name]

    def count(self, name: str) -> None:
        """One more."""
        nums = self._nums()
        value = json.dumps(nums | {name: nums[name] + 1})
        self.set("rows", value)

    def set(self, key: str, value: str) -> None:
        """Another value of the identity."""
        digest = _digest("identity", [key, value])
        self.db.execute("UPDATE identity SET value = ?, digest = ? WHERE key = ?", (value, digest, key))

    def row(self, table: str, key: int) -> tuple[Any, ...]:
        """One row, by its number."""
        (row,) = self.db.execute(f"SELECT * FROM {table} NOT INDEXED WHERE rowid = ?", (key,)).fetchall()
        return _whole(table, row)

    def all(self, table: str) -> Iterator[tuple[Any, ...]]:
        """All rows, in the order in which they were written; as many as there have to be."""
        self._see_all(table, f"{table} NOT INDEXED", table)
        for row in self.db.execute(f"SELECT * FROM {table} NOT INDEXED ORDER BY rowid"):
            yield _whole(table, row)

    def _see_all(self, name: str, rows: str, shown: str) -> None:
        """Raise `ValueError` where there are fewer than there have to be. It is one query: an agent at work adds rows meanwhile."""
        query = f"SELECT (SELECT COUNT(*) FROM {rows}), * FROM identity NOT INDEXED WHERE key = 'rows'"
        ((num, *row),) = self.db.execute(query).fetchall()
        if num != (known := json.loads(_whole("identity", row)[1])[name]):
            raise ValueError(f"{num} {shown} are left of {known}")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with damage_named(self.path):
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("COMMIT")
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("ROLLBACK")
                raise


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Say in one line that the file is damaged, whatever SQLite and what reads its rows say."""
    try:
        yield
    except (ConfigError, DataError):
        raise
    except sqlite3.OperationalError as error:
        remedy = "Make room" if "full" in str(error) else "Wait if it is busy"
        raise DataError(f"{path} cannot be used ({error}). {remedy}, or name another --state.") from error
    except sqlite3.IntegrityError as error:
        said = f"holds already what was to be added ({error}): another process adds to it"
        raise DataError(f"{path} {said}. Let one agent at a time live there, and begin again.") from error
    except _OF_DAMAGE as error:
        said = f"is damaged, or no store of an agent ({in_a_line(error, 200)})"
        raise DataError(f"{path} {said}. Restore a copy, or name another --state.") from error


def packed(value: object) -> bytes:
    """The value as a row holds it."""
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode())


def unpacked(content: bytes) -> Any:
    """`packed` back again. Raises `ValueError` for what would take more memory than any record of an agent."""
    inside = zlib.decompressobj()
    text = inside.decompress(content, _LONGEST)
    if not inside.eof:
        raise ValueError("a record is cut off, or longer than any")
    return json.loads(text)


def _see_own_journal(path: Path) -> None:
    """Raise `DataError` where a foreign journal lies beside the file: one of several files ends with a name, as this store's never
    does, and SQLite would remove the file of that name."""
    for journal in (Path(f"{path.resolve()}-{kind}") for kind in ("journal", "wal", "shm")):
        with suppress(FileNotFoundError):  # as soon as an agent at work ends its transaction
            if stat.S_ISREG(journal.lstat().st_mode) and journal.name.endswith("-journal"):
                with journal.open("rb") as file:
                    file.seek(max(0, file.seek(0, os.SEEK_END) - len(_JOURNAL)))
                    if file.read() != _JOURNAL:
                        continue
            raise DataError(f"{journal} is no journal of an agent. Remove it, or name another --state.")


def _made(table: str) -> str:
    """The statement that makes the table."""
    return f"CREATE TABLE {table} ({_TABLES[table]}, digest TEXT NOT NULL{_ONCE.get(table, '')}) STRICT"


def _whole(table: str, row: Sequence[Any]) -> tuple[Any, ...]:
    """The row without its digest. Raises `ValueError` where that is not the row's."""
    *values, digest = row
    if digest != _digest(table, values):
        raise ValueError(f"a row of {table} is not as it was written")
    return tuple(values)


def _digest(table: str, row: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps([table, *row], default=bytes.hex).encode()).hexdigest()[:32]
