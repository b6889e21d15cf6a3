"""The SQLite file of a deployed agent, row by row: nothing else knows how rows lie there.

Every row has a digest, and the number of rows is kept, so that a damaged file is refused and never taken for another life. A
row's texts are kept as what changed since a row before it, until reading that would take twice their length; then as a whole: a
file of versions grows with what is new and not with what is old.
There is one file: of a journal that is written ahead (WAL), SQLite takes a damaged end for none, and a life would lose its last
tasks without a word.
"""

import hashlib
import json
import os
import re
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import SequenceMatcher
from itertools import accumulate
from pathlib import Path
from typing import Any

from cod_lightning.beginnings import num_alike
from cod_lightning.errors import ConfigError, DataError, in_a_line
from cod_lightning.types import EpisodeKind

SCHEMA = 4
_TABLES = {
    "identity": "key TEXT PRIMARY KEY, value TEXT NOT NULL",
    "episodes": "id INTEGER PRIMARY KEY, task TEXT NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL, "
    "status TEXT NOT NULL, reward REAL, success INTEGER, context_version INTEGER NOT NULL, began REAL NOT NULL, "
    "ended REAL NOT NULL, content TEXT NOT NULL",
    "contexts": "version INTEGER PRIMARY KEY, episode INTEGER REFERENCES episodes (id), created REAL NOT NULL, "
    "reason TEXT NOT NULL, content TEXT NOT NULL",
}
"""Columns, to which the digest of the others is added; `content` is a record of an episode, or text and state of a context."""
_OF_DAMAGE = (sqlite3.Error, ValueError, TypeError, LookupError, AttributeError, OverflowError, MemoryError)
_OF_DAMAGE += (RecursionError, AssertionError)  # of records that lie deep, or say what no episode says
_ONCE = {"episodes": ", UNIQUE (position, kind)"}
_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""With which a journal of several files ends."""
OWN = ("schema", "rows")
"""Keys of `identity` that the store keeps for itself; `rows` is how many each table has."""
_OF_CONTEXT = ("context_before", "context_after", "state_before", "state_after")
_RECENT, _NEAR = 8, 8
"""Rows whose texts stay in memory; how far back an episode of the same kind is looked for, to be compared with."""
Delta = list[str | list[int]]
"""Parts of the new text in order: new letters, or [start, number of letters] of the text before."""
_BETWEEN = re.compile(r"(?<=\W)(?=[as3])")
"""Where a text is cut into pieces of some 30 letters: by its own letters, so that they stay the same where others come between."""
_MOST_PIECES = 20_000
"""Beyond which a middle that changed counts as new, since comparing would take seconds."""


class FolderRows:
    """The file at `path`. Every method raises `sqlite3.Error`, `ValueError` and the like for a damaged one: see `damage_named`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._recent: dict[tuple[str, int], tuple[list[str], int]] = {}
        """Texts of rows, and how many letters were read for them, the latest last."""
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
        tables = {name for kind, name, _ in items if kind == "table"}
        row = None
        if "identity" in tables:
            # views, triggers and computed columns act as soon as a table is read or written
            for kind, name, sql in items:
                if not (sql == _made(name) if kind == "table" and name in _TABLES else kind == "index" and sql is None):
                    raise DataError(
                        f"{self.path} has a {kind}, {name!r:.40}, that is no agent's. Name another --state."
                    )
            row = self.db.execute("SELECT value FROM identity NOT INDEXED WHERE key = 'schema'").fetchone()
        if row is None or row[0] != str(SCHEMA):
            found = "no agent's tables" if row is None else f"schema {row[0]}"
            remedy = "Deploy it with the version that wrote it, or name another --state."
            raise DataError(f"{self.path} holds {found}; this version reads schema {SCHEMA}. {remedy}")
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

    def before(self, key: int, kind: str) -> int:
        """The latest episode of that kind before episode `key`, if it is near; else 0."""
        query = "SELECT id, kind FROM episodes NOT INDEXED WHERE id < ? ORDER BY id DESC LIMIT ?"
        near = self.db.execute(query, (key, _NEAR)).fetchall()
        return next((number for number, of in near if of == kind), 0)

    def packed(self, table: str, base: int, texts: list[str]) -> str:
        """The texts of a new row: what changed since row `base`; whole where there is none, or where they would be long to read."""
        whole = json.dumps({"texts": texts}, ensure_ascii=False)
        if base < (table == "episodes"):
            return whole
        before, cost = self.texts(table, base)
        changes = [delta(*pair) for pair in zip(before, texts, strict=True)]
        cost += len(json.dumps(changes, ensure_ascii=False))
        if cost > 2 * len(whole):
            return whole
        return json.dumps({"base": base, "cost": cost, "changes": changes}, ensure_ascii=False)

    def texts(self, table: str, key: int) -> tuple[list[str], int]:
        """The texts of a row, and how many letters have to be read for them."""
        chain, at = list[dict[str, Any]](), key
        while (found := self._recent.get((table, at))) is None:
            content = json.loads(self.row(table, at)[-1])
            if "texts" in content:
                if not all(isinstance(text, str) for text in content["texts"]):
                    raise ValueError(f"a row of {table} holds no texts")
                found = content["texts"], len(json.dumps(content, ensure_ascii=False))
                break
            if not 0 <= content["base"] < at:
                raise ValueError(f"a row of {table} follows none before it")
            chain.append(content)
            at = content["base"]
        texts, cost = found
        for content in reversed(chain):
            texts, cost = [patched(*pair) for pair in zip(texts, content["changes"], strict=True)], content["cost"]
        self._recent[table, key] = texts, cost
        while len(self._recent) > _RECENT:
            del self._recent[next(iter(self._recent))]
        return texts, cost

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with damage_named(self.path):
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("COMMIT")
            except BaseException:
                self._recent.clear()
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


def texts_of(record: dict[str, Any]) -> list[str]:
    """The texts of an episode's row: contexts and states apart, since each is like that of the episode before."""
    rest = {key: value for key, value in record.items() if key not in _OF_CONTEXT}
    parts = [json.dumps(record[key], ensure_ascii=False) if key in record else "" for key in _OF_CONTEXT]
    return [json.dumps(rest, separators=(",", ":")), *parts]


def record_of(texts: Sequence[str]) -> dict[str, Any]:
    """`texts_of` back again."""
    parts = {key: json.loads(text) for key, text in zip(_OF_CONTEXT, texts[1:], strict=True) if text}
    return json.loads(texts[0]) | parts


def delta(before: str, after: str) -> Delta:
    """What makes `after` from `before`: `patched(before, delta(before, after)) == after`."""
    start = num_alike(before, after)
    end = num_alike(before[start:][::-1], after[start:][::-1])
    old, new = (_BETWEEN.split(text[start : len(text) - end]) for text in (before, after))
    if max(len(old), len(new)) > _MOST_PIECES:
        old = []
    starts = [*accumulate(map(len, old), initial=start)]
    parts = Delta([[0, start]] if start else [])
    for kind, first, last, at, behind in SequenceMatcher(None, old, new).get_opcodes():
        if kind == "equal":
            parts.append([starts[first], starts[last] - starts[first]])
        elif fresh := "".join(new[at:behind]):
            parts.append(fresh)
    return [*parts, [len(before) - end, end]] if end else parts


def patched(before: str, parts: Sequence[str | list[int]]) -> str:
    """The text that the delta makes. Raises `TypeError` or `ValueError` for what is no delta."""
    made, at = list[str](), 0
    for part in parts:
        if isinstance(part, str):
            made.append(part)
            continue
        start, number = part
        if not at <= start <= start + number <= len(before):  # so what it makes is no longer than both together
            raise ValueError("a delta copies what is not there, or twice")
        made.append(before[start : start + number])
        at = start + number
    return "".join(made)


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
    return hashlib.sha256(json.dumps([table, *row]).encode()).hexdigest()[:32]
