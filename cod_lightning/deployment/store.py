"""What a deployed agent keeps: every episode and every version of its context, in one SQLite file.

A finished episode and the context that it leaves are written in one transaction, so that a kill at any moment loses the
episode in flight and nothing else. Nothing is ever overwritten: going back is a new version with an old text. Every row has a
digest, and the number of rows is kept, so that a damaged file is refused and never taken for another life. There is one file: of a
journal that is written ahead (WAL), SQLite takes a damaged end for none, and a life would lose its last tasks without a word.
"""

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cod_lightning.errors import ConfigError, DataError
from cod_lightning.rollout.transcript import episode_record, read_episode
from cod_lightning.types import Episode, EpisodeKind

SCHEMA = 2
"""1, which had neither states nor digests, is read and brought to 2."""
_FILE = "agent.sqlite"
_TABLES = {
    "identity": "key TEXT PRIMARY KEY, value TEXT NOT NULL",
    "episodes": "id INTEGER PRIMARY KEY, task TEXT NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL, "
    "status TEXT NOT NULL, reward REAL, success INTEGER, context_version INTEGER NOT NULL, began REAL NOT NULL, "
    "ended REAL NOT NULL, record TEXT NOT NULL",
    "contexts": "version INTEGER PRIMARY KEY, episode INTEGER REFERENCES episodes (id), created REAL NOT NULL, "
    "reason TEXT NOT NULL, text TEXT NOT NULL, state TEXT NOT NULL",
}
"""Columns, to which the digest of the others is added."""
_ONCE = {"episodes": ", UNIQUE (position, kind)"}
_OWN = ("schema", "rows")
"""Keys of `identity` that the store keeps for itself; `rows` is how many each table has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextVersion:
    """One version of the context."""

    version: int
    """From 0, the empty one, on; the highest is the current one."""
    text: str
    """The context for readers."""
    state: str
    """Its state as the mechanism dumps it; empty for an empty context, and where schema 1 kept the text alone."""
    reason: str
    """`start`, `update`, `task` (its reward or its turns changed the state) or `revert to N`."""
    created: float
    """Seconds since 1970."""
    position: int | None
    """Task after which it was written; None where no episode wrote it."""
    reward: float | None
    """Of that task's solve episode; None where missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEpisode:
    """One finished episode."""

    task: str
    context_version: int
    """Version that it began with."""
    began: float
    ended: float
    episode: Episode


class ContextStore:
    """The file `agent.sqlite` of a state folder.

    Args:
        folder: State folder; made if it is not there and `create` says so.
        create: Whether a folder without a store gets a new one.

    Raises:
        ConfigError: Where there is no store and none shall be made.
        DataError: Where the file is no store of this schema, or damaged; so does every method.
    """

    def __init__(self, folder: Path | str, *, create: bool = True) -> None:
        self.path = Path(folder).absolute() / _FILE
        if not self.path.is_file():
            if not create:
                raise ConfigError("--state", folder, f"a state folder with {_FILE}", "`deploy --state DIR` makes one.")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._make()
        with self._damage_named():
            self._db = _connected(self.path)
            self._open()

    def close(self) -> None:
        with self._damage_named():
            self._db.close()

    # ------------------------------------------------------------------ identity

    def claim(self, identity: dict[str, str], *, new_policy: bool = False) -> None:
        """Say what this agent lives in; the first to say so decides. `ConfigError` with what differs otherwise.

        Keys are not asked about that a store lacks since an earlier version made it; they decide from now on. With `new_policy`
        another policy goes on with the agent's context, and decides from now on.
        """
        identity = {_encodable(key): _encodable(value) for key, value in identity.items()}
        with self._transaction():
            known = self.identity
            free = {"policy"} if new_policy else set[str]()
            new = {key: value for key, value in identity.items() if key not in known or key in free}
            if differing := sorted(key for key in known.keys() - free if known[key] != identity.get(key)):
                changes = "; ".join(f"{key} was {known[key]}, is {identity.get(key)}" for key in differing)
                expected = f"the state of this agent, but {changes}"
                remedy = "Use what it was, or another folder."
                if differing == ["policy"]:
                    remedy = "Use what it was, another folder, or --accept_changes true: the new policy then goes on."
                raise ConfigError("--state", self.path.parent, expected, remedy)
            for key, value in new.items():
                if key in known:
                    self._set(key, value)
                else:
                    self._put("identity", key, value)

    @property
    def identity(self) -> dict[str, str]:
        """The identity that `claim` stored."""
        with self._damage_named():
            return {key: value for key, value in self._all("identity") if key not in _OWN}

    # ------------------------------------------------------------------ writing

    def add(self, task: str, episode: Episode, began: float, state: str | None) -> None:
        """An episode has ended; `state`, where it is not None, is that of the context that it leaves, a new version."""
        with self._transaction():
            row = self._add(task, episode, began)
            if state is not None:
                reason = "update" if episode.kind is EpisodeKind.UPDATE else "task"
                self._version(episode.context_after, state, reason, row)

    def revert(self, version: int) -> int:
        """Make the text of an old version current again; the number of the version that says so."""
        old = self.version(version)
        with self._transaction():
            return self._version(old.text, old.state, f"revert to {version}", None)

    # ------------------------------------------------------------------ reading

    def current(self) -> ContextVersion:
        """The newest version."""
        with self._damage_named():
            newest = self._num("contexts") - 1
        return self.version(newest)

    def version(self, number: int) -> ContextVersion:
        """One version; `ConfigError` where there is none of that number."""
        with self._damage_named():
            num = self._num("contexts")
            if 0 <= number < num:
                return self._as_version(self._row("contexts", number), self._row)
        raise ConfigError("version", number, f"in 0..{num - 1}", "`context log` lists them.")

    def versions(self) -> list[ContextVersion]:
        """All versions, oldest first."""
        with self._damage_named():
            episodes = dict(enumerate(self._all("episodes"), start=1))
            return [self._as_version(row, lambda table, key: episodes[key]) for row in self._all("contexts")]

    def episodes(self) -> list[StoredEpisode]:
        """All finished episodes, oldest first."""
        with self._damage_named():
            return [_as_episode(row) for row in self._all("episodes")]

    def num_solved(self) -> int:
        """Tasks that have ended, well or badly."""
        with self._damage_named():
            return self._num("solved")

    # ------------------------------------------------------------------ inside

    def _make(self) -> None:
        """A new store, under its name only when it is whole."""
        unfinished = self.path.with_name(f"{_FILE}.{os.getpid()}.new")
        unfinished.unlink(missing_ok=True)
        with self._damage_named():
            self._db = _connected(unfinished)
            for table, columns in _TABLES.items():
                self._db.execute(f"CREATE TABLE {table} ({columns}, digest TEXT NOT NULL{_ONCE.get(table, '')}) STRICT")
            with self._transaction():
                self._begin({"identity": 2, "episodes": 0, "contexts": 0, "solved": 0})
                self._version("", "", "start", None)
            self._db.close()
        unfinished.replace(self.path)

    def _open(self) -> None:
        items = self._db.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        tables = {name for kind, name, _ in items if kind == "table"}
        row = None
        if "identity" in tables:
            for kind, name, sql in items:  # views and triggers act as soon as a table is read or written
                if not (name in _TABLES if kind == "table" else kind == "index" and sql is None):
                    raise DataError(
                        f"{self.path} has a {kind}, {name!r:.40}, that is no agent's. Name another --state."
                    )
            row = self._db.execute("SELECT value FROM identity NOT INDEXED WHERE key = 'schema'").fetchone()
        if row is not None and row[0] == "1":
            self._migrate()
        elif row is None or row[0] != str(SCHEMA):
            found = "no agent's tables" if row is None else f"schema {row[0]}"
            raise DataError(f"{self.path} holds {found}; this version reads schema {SCHEMA}. Name another --state.")
        self._all("identity")

    def _migrate(self) -> None:
        """Make a store of schema 1 one of this schema."""
        with self._transaction():
            self._db.execute("ALTER TABLE contexts ADD COLUMN state TEXT NOT NULL DEFAULT ''")
            nums: dict[str, int] = {}
            self._db.execute("DELETE FROM identity WHERE key = 'schema'")
            for table in _TABLES:
                rows = self._db.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid").fetchall()
                self._db.execute(f"ALTER TABLE {table} ADD COLUMN digest TEXT NOT NULL DEFAULT ''")
                for rowid, *row in rows:
                    self._db.execute(f"UPDATE {table} SET digest = ? WHERE rowid = ?", (_digest(table, row), rowid))
                nums[table] = len(rows)
            solved = self._db.execute("SELECT COUNT(*) FROM episodes WHERE kind = 'solve'").fetchone()[0]
            self._begin(nums | {"identity": nums["identity"] + 2, "solved": solved})

    def _begin(self, nums: dict[str, int]) -> None:
        """The store's own keys."""
        for key, value in zip(_OWN, (str(SCHEMA), json.dumps(nums)), strict=True):
            self._db.execute("INSERT INTO identity VALUES (?, ?, ?)", (key, value, _digest("identity", [key, value])))

    def _add(self, task: str, episode: Episode, began: float) -> int:
        key, context = self._num("episodes") + 1, self._num("contexts") - 1
        reward = None if episode.reward is None else float(episode.reward) + 0.0  # SQLite keeps no -0.0
        success = None if episode.success is None else int(episode.success)
        record = json.dumps(episode_record(episode), separators=(",", ":"))
        outcome = episode.kind.value, episode.status.value, reward, success
        row = key, _encodable(task), episode.position, *outcome, context, float(began), time.time(), record
        self._put("episodes", *row)
        if episode.kind is EpisodeKind.SOLVE:
            self._count("solved")
        return key

    def _version(self, text: str, state: str, reason: str, episode: int | None) -> int:
        number = self._num("contexts")
        self._put("contexts", number, episode, time.time(), reason, _encodable(text), _encodable(state))
        return number

    def _put(self, table: str, *row: Any) -> None:
        marks = ", ".join("?" * (len(row) + 1))
        self._db.execute(f"INSERT INTO {table} VALUES ({marks})", (*row, _digest(table, row)))
        self._count(table)

    def _nums(self) -> dict[str, int]:
        """How many rows there are, by table; of episodes also how many are `solved` tasks."""
        found = self._db.execute("SELECT * FROM identity NOT INDEXED WHERE key = 'rows'").fetchall()
        return json.loads(_whole("identity", found[0])[1])

    def _num(self, name: str) -> int:
        return self._nums()[name]

    def _count(self, name: str) -> None:
        """One more."""
        nums = self._nums()
        value = json.dumps(nums | {name: nums[name] + 1})
        self._set("rows", value)

    def _set(self, key: str, value: str) -> None:
        """Another value of the identity."""
        digest = _digest("identity", [key, value])
        self._db.execute("UPDATE identity SET value = ?, digest = ? WHERE key = ?", (value, digest, key))

    def _row(self, table: str, key: int) -> tuple[Any, ...]:
        """One row, by its number."""
        (row,) = self._db.execute(f"SELECT * FROM {table} NOT INDEXED WHERE rowid = ?", (key,)).fetchall()
        return _whole(table, row)

    def _all(self, table: str) -> list[tuple[Any, ...]]:
        """All rows, in the order in which they were written; as many as there have to be."""
        rows = self._db.execute(f"SELECT * FROM {table} NOT INDEXED ORDER BY rowid").fetchall()
        if len(rows) != self._num(table):
            raise ValueError(f"{len(rows)} {table} are left of {self._num(table)}")
        return [_whole(table, row) for row in rows]

    def _as_version(self, row: Sequence[Any], row_of: Callable[[str, int], Sequence[Any]]) -> ContextVersion:
        number, episode, created, reason, text, state = row
        position = reward = None
        if episode is not None:
            task = row_of("episodes", episode if reason == "task" else episode - 1)  # the task that it followed
            position, reward = task[2], task[5]
        return ContextVersion(
            version=number, text=text, state=state, reason=reason, created=created, position=position, reward=reward
        )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._damage_named():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        """Say in one line that the file is damaged, whatever SQLite and what reads its rows say."""
        try:
            yield
        except (ConfigError, DataError):
            raise
        except sqlite3.OperationalError as error:
            remedy = "Make room" if "full" in str(error) else "Wait if it is busy"
            raise DataError(f"{self.path} cannot be used ({error}). {remedy}, or name another --state.") from error
        except (sqlite3.Error, ValueError, TypeError, LookupError, AttributeError, OverflowError, MemoryError) as error:
            said = " ".join(str(error).split())[:200]
            raise DataError(
                f"{self.path} is damaged, or no store of an agent ({said}). Restore a copy, or name another --state."
            ) from error


def _connected(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, timeout=10)
    for setting in ("journal_mode=DELETE", "synchronous=EXTRA", "foreign_keys=ON", "cell_size_check=ON"):
        db.execute(f"PRAGMA {setting}")
    return db


def _as_episode(row: Sequence[Any]) -> StoredEpisode:
    _, task, *_, version, began, ended, record = row
    episode = read_episode(json.loads(record))
    return StoredEpisode(task=task, context_version=version, began=began, ended=ended, episode=episode)


def _whole(table: str, row: Sequence[Any]) -> tuple[Any, ...]:
    """The row without its digest. Raises `ValueError` where that is not the row's."""
    *values, digest = row
    if digest != _digest(table, values):
        raise ValueError(f"a row of {table} is not as it was written")
    return tuple(values)


def _digest(table: str, row: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps([table, *row]).encode()).hexdigest()[:32]


def _encodable(text: str) -> str:
    """The text without lone surrogates, which a model behind an endpoint can write and no file can hold."""
    return text.encode("utf-8", "replace").decode()
