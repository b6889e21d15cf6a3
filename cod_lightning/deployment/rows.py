"""The SQLite file of a deployed agent, row by row: nothing else knows how rows lie there.

Every row has a digest, and the number of rows is kept, so that a damaged file is refused and never taken for another life. A
row is compressed by what an earlier one holds: contexts of up to some 10,000 letters hardly grow the file where they repeat.
There is one file: of a journal that is written ahead (WAL), SQLite takes a damaged end for none, and a life would lose its last
tasks without a word.
"""

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cod_lightning.errors import ConfigError, DataError

SCHEMA = 4
_TABLES = {
    "identity": "key TEXT PRIMARY KEY, value TEXT NOT NULL",
    "episodes": "id INTEGER PRIMARY KEY, task TEXT NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL, "
    "status TEXT NOT NULL, reward REAL, success INTEGER, context_version INTEGER NOT NULL, began REAL NOT NULL, "
    "ended REAL NOT NULL, content BLOB NOT NULL",
    "contexts": "version INTEGER PRIMARY KEY, episode INTEGER REFERENCES episodes (id), created REAL NOT NULL, "
    "reason TEXT NOT NULL, content BLOB NOT NULL",
}
"""Columns, to which the digest of the others is added; `content` is a record of an episode, or text and state of a context."""
_ONCE = {"episodes": ", UNIQUE (position, kind)"}
OWN = ("schema", "rows")
"""Keys of `identity` that the store keeps for itself; `rows` is how many each table has."""
_RUN = 16
"""Rows of which the first stands by itself, and the others beside it."""
_WINDOW, _MOST = 2**15, 2**27
"""Bytes that zlib looks back, and bytes of a row's content: a foreign one may unpack to any length."""


class FolderRows:
    """The file at `path`. Every method raises `sqlite3.Error`, `ValueError` and the like for a damaged one: see `damage_named`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._first: dict[str, tuple[int, bytes]] = {}
        """By table, the first row of the latest run: its number, and the end of what it holds."""
        self.db = sqlite3.connect(path, isolation_level=None, timeout=10)
        for setting in ("journal_mode=DELETE", "synchronous=EXTRA", "foreign_keys=ON", "cell_size_check=ON"):
            self.db.execute(f"PRAGMA {setting}")

    def begin(self) -> None:
        """The tables of a new file; a transaction is open."""
        for table, columns in _TABLES.items():
            self.db.execute(f"CREATE TABLE {table} ({columns}, digest TEXT NOT NULL{_ONCE.get(table, '')}) STRICT")
        nums = json.dumps({"identity": 2, "episodes": 0, "contexts": 0, "solved": 0})
        for key, value in zip(OWN, (str(SCHEMA), nums), strict=True):
            self._insert("identity", [key, value])

    def open(self) -> None:
        """Look at a file that is there. Raises `DataError` for one of another schema or kind."""
        items = self.db.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        tables = {name for kind, name, _ in items if kind == "table"}
        row = None
        if "identity" in tables:
            for kind, name, sql in items:  # views and triggers act as soon as a table is read or written
                if not (name in _TABLES if kind == "table" else kind == "index" and sql is None):
                    raise DataError(
                        f"{self.path} has a {kind}, {name!r:.40}, that is no agent's. Name another --state."
                    )
            row = self.db.execute("SELECT value FROM identity NOT INDEXED WHERE key = 'schema'").fetchone()
        if row is None or row[0] != str(SCHEMA):
            found = "no agent's tables" if row is None else f"schema {row[0]}"
            remedy = "Deploy it with the version that wrote it, or name another --state."
            raise DataError(f"{self.path} holds {found}; this version reads schema {SCHEMA}. {remedy}")
        list(self.all("identity"))

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
        (num,) = self.db.execute(f"SELECT COUNT(*) FROM {table} NOT INDEXED").fetchone()
        if num != self.num(table):
            raise ValueError(f"{num} {table} are left of {self.num(table)}")
        for row in self.db.execute(f"SELECT * FROM {table} NOT INDEXED ORDER BY rowid"):
            yield _whole(table, row)

    def packed(self, table: str, key: int, value: Any) -> bytes:
        """The content of a new row, compressed; what is in the first row of its run as well takes next to nothing."""
        compressor = zlib.compressobj(zdict=self._known(table, key))
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return compressor.compress(text.encode("utf-8", "replace")) + compressor.flush()

    def unpacked(self, table: str, key: int, content: bytes) -> Any:
        """`packed` back again, of the row with that number."""
        return json.loads(_unpacked(content, self._known(table, key)))

    def _known(self, table: str, key: int) -> bytes:
        """The end of what the first row of this one's run holds; nothing for the first row itself."""
        first = max(key - key % _RUN, table == "episodes")  # whose rows count from 1
        if first == key:
            return b""
        if self._first.get(table, (-1, b""))[0] != first:
            self._first[table] = first, _unpacked(self.row(table, first)[-1], b"")[-_WINDOW:]
        return self._first[table][1]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with damage_named(self.path):
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("COMMIT")
            except BaseException:
                self._first.clear()
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
    except (
        sqlite3.Error,
        zlib.error,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        OverflowError,
        MemoryError,
    ) as error:
        said = " ".join(str(error).split())[:200]
        raise DataError(
            f"{path} is damaged, or no store of an agent ({said}). Restore a copy, or name another --state."
        ) from error


def _whole(table: str, row: Sequence[Any]) -> tuple[Any, ...]:
    """The row without its digest. Raises `ValueError` where that is not the row's."""
    *values, digest = row
    if digest != _digest(table, values):
        raise ValueError(f"a row of {table} is not as it was written")
    return tuple(values)


def _unpacked(content: bytes, known: bytes) -> bytes:
    """Raises `ValueError` and `zlib.error` for what was not packed so."""
    unpacking = zlib.decompressobj(zdict=known)
    found = unpacking.decompress(content, _MOST)
    if not unpacking.eof:
        raise ValueError(f"the content of a row is cut off, or has more than {_MOST:,} bytes")
    return found


def _digest(table: str, row: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps([table, *row], default=bytes.hex).encode()).hexdigest()[:32]
