"""What a deployed agent keeps: every episode and every version of its context, in one SQLite file.

A finished episode and the context that it leaves are written in one transaction, so that a kill at any moment loses the
episode in flight and nothing else. Nothing is ever overwritten: going back is a new version with an old text.
"""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cod_lightning.errors import ConfigError, DataError
from cod_lightning.rollout.transcript import episode_record, read_episode
from cod_lightning.types import Episode, EpisodeKind

SCHEMA = 2
"""1, in which a context was a text, is read and brought to 2."""
_FILE = "agent.sqlite"
_TABLES = """
CREATE TABLE identity (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE episodes (
    id INTEGER PRIMARY KEY, task TEXT NOT NULL, position INTEGER NOT NULL, kind TEXT NOT NULL, status TEXT NOT NULL,
    reward REAL, success INTEGER, context_version INTEGER NOT NULL, began REAL NOT NULL, ended REAL NOT NULL,
    record TEXT NOT NULL, UNIQUE (position, kind)
) STRICT;
CREATE TABLE contexts (
    version INTEGER PRIMARY KEY, episode INTEGER REFERENCES episodes (id), created REAL NOT NULL, reason TEXT NOT NULL,
    text TEXT NOT NULL, state TEXT NOT NULL DEFAULT ''
) STRICT;
"""


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
        DataError: Where the file is no store of this schema.
    """

    def __init__(self, folder: Path | str, *, create: bool = True) -> None:
        self.path = Path(folder) / _FILE
        if not create and not self.path.is_file():
            raise ConfigError("--state", folder, f"a state folder with {_FILE}", "`deploy --state DIR` makes one.")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = sqlite3.connect(self.path, isolation_level=None, timeout=10)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("PRAGMA foreign_keys=ON")
            self._open()
        except sqlite3.DatabaseError as error:
            raise DataError(f"{self.path} is no store of an agent ({error}). Name another --state.") from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # ------------------------------------------------------------------ identity

    def claim(self, identity: dict[str, str]) -> None:
        """Say what this agent lives in; the first to say so decides. `ConfigError` with what differs otherwise."""
        with self._transaction():
            known = dict(self._db.execute("SELECT key, value FROM identity WHERE key != 'schema'").fetchall())
            if not known:
                self._db.executemany("INSERT INTO identity VALUES (?, ?)", identity.items())
                return
        if differing := sorted(key for key in {*known, *identity} if known.get(key) != identity.get(key)):
            told = "; ".join(f"{key} was {known.get(key)}, is {identity.get(key)}" for key in differing)
            raise ConfigError(
                "--state", self.path.parent, f"the state of this agent, but {told}", "Use another folder."
            )

    @property
    def identity(self) -> dict[str, str]:
        """What `claim` said."""
        return dict(self._db.execute("SELECT key, value FROM identity WHERE key != 'schema'").fetchall())

    # ------------------------------------------------------------------ writing

    def add(self, task: str, episode: Episode, began: float, state: str | None) -> None:
        """An episode has ended; `state`, where it is not None, is that of the context that it leaves, a new version."""
        with self._transaction():
            row = self._insert(task, episode, began)
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
        return self.versions()[-1]

    def version(self, number: int) -> ContextVersion:
        """One version; `ConfigError` where there is none of that number."""
        found = [v for v in self.versions() if v.version == number]
        if not found:
            newest = self.current().version
            raise ConfigError("version", number, f"in 0..{newest}", "`context log` lists them.")
        return found[0]

    def versions(self) -> list[ContextVersion]:
        """All versions, oldest first."""
        rows = self._db.execute(
            "SELECT c.version, c.text, c.state, c.reason, c.created, e.position, s.reward FROM contexts c "
            "LEFT JOIN episodes e ON e.id = c.episode "
            "LEFT JOIN episodes s ON s.position = e.position AND s.kind = 'solve' ORDER BY c.version"
        )
        keys = ("version", "text", "state", "reason", "created", "position", "reward")
        return [ContextVersion(**dict(zip(keys, row, strict=True))) for row in rows]

    def episodes(self) -> list[StoredEpisode]:
        """All finished episodes, oldest first."""
        rows = self._db.execute("SELECT task, context_version, began, ended, record FROM episodes ORDER BY id")
        return [
            StoredEpisode(
                task=task, context_version=version, began=began, ended=ended, episode=read_episode(json.loads(record))
            )
            for task, version, began, ended, record in rows
        ]

    def num_solved(self) -> int:
        """Tasks that have ended, well or badly."""
        return self._db.execute("SELECT COUNT(*) FROM episodes WHERE kind = 'solve'").fetchone()[0]

    # ------------------------------------------------------------------ inside

    def _open(self) -> None:
        with self._transaction():
            tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables:
                for statement in _TABLES.split(";"):
                    self._db.execute(statement)
                self._db.execute("INSERT INTO identity VALUES ('schema', ?)", (str(SCHEMA),))
                self._version("", "", "start", None)
                return
            row = None
            if "identity" in tables:
                row = self._db.execute("SELECT value FROM identity WHERE key = 'schema'").fetchone()
            if row is not None and row[0] == "1":
                self._db.execute("ALTER TABLE contexts ADD COLUMN state TEXT NOT NULL DEFAULT ''")
                self._db.execute("UPDATE identity SET value = ? WHERE key = 'schema'", (str(SCHEMA),))
                row = (str(SCHEMA),)
        if row is None or row[0] != str(SCHEMA):
            found = "no agent's tables" if row is None else f"schema {row[0]}"
            raise DataError(f"{self.path} holds {found}; this version reads schema {SCHEMA}. Name another --state.")

    def _insert(self, task: str, episode: Episode, began: float) -> int:
        cursor = self._db.execute(
            "INSERT INTO episodes (task, position, kind, status, reward, success, context_version, began, ended, record) "
            "VALUES (?, ?, ?, ?, ?, ?, (SELECT MAX(version) FROM contexts), ?, ?, ?)",
            (
                task,
                episode.position,
                episode.kind.value,
                episode.status.value,
                episode.reward,
                episode.success,
                began,
                time.time(),
                json.dumps(episode_record(episode), separators=(",", ":")),
            ),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def _version(self, text: str, state: str, reason: str, episode: int | None) -> int:
        number = self._db.execute("SELECT COALESCE(MAX(version), -1) + 1 FROM contexts").fetchone()[0]
        values = (number, episode, time.time(), reason, text, state)
        self._db.execute("INSERT INTO contexts VALUES (?, ?, ?, ?, ?, ?)", values)
        return number

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")
