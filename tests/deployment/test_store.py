"""The file of a deployed agent."""

import itertools
import json
import sqlite3
import struct
import zlib
from pathlib import Path

import pytest
from msgspec import structs

from cod_lightning.deployment import ContextStore, rows
from cod_lightning.deployment.rows import packed
from cod_lightning.errors import ConfigError, DataError
from cod_lightning.types import Episode, EpisodeKind
from tests.cases import each
from tests.records import episode


def _solve(position: int, reward: float = 1.0) -> Episode:
    return episode(position=position, reward=reward, success=reward > 0, feedback="fine")


def _update(position: int, text: str) -> Episode:
    return episode(kind=EpisodeKind.UPDATE, position=position, reward=0.0, success=True, context_after=text)


def _lived(folder, num: int) -> ContextStore:
    store = ContextStore(folder)
    for n in range(num):
        store.add(f"t{n}", _solve(n, reward=n / 10), 100.0 + n, None)
        store.add(f"t{n}", _update(n, f"note {n}"), 100.5 + n, "{}")
    return store


def _edited(folder, script: str) -> None:
    """Others write into the file."""
    other = sqlite3.connect(folder / "agent.sqlite")
    other.executescript(script)
    other.close()


def test_every_version_carries_its_task_and_reward_and_survives_reopening(tmp_path):
    _lived(tmp_path, 3).close()
    store = ContextStore(tmp_path)
    assert [(v.version, v.text, v.position, v.reward) for v in store.versions()] == [
        (0, "", None, None),
        (1, "note 0", 0, 0.0),
        (2, "note 1", 1, 0.1),
        (3, "note 2", 2, 0.2),
    ]
    assert store.current().text == "note 2"
    assert [s.context_version for s in store.episodes()] == [0, 0, 1, 1, 2, 2]
    assert next(s.episode for s in store.episodes()) == structs.replace(
        _solve(0, 0.0), state_before=None, state_after=None
    )
    assert all(s.ended >= s.began for s in store.episodes())


def test_a_task_that_another_process_has_stored_meanwhile_is_no_damage(tmp_path):
    store, other = _lived(tmp_path, 1), ContextStore(tmp_path)
    other.add("t1", _solve(1), 0.0, None)
    with pytest.raises(DataError, match="another process adds to it"):
        store.add("t1", _solve(1), 0.0, None)
    assert [one.episode.position for one in store.episodes()] == [0, 0, 1]


def test_going_back_is_a_new_version(tmp_path):
    store = _lived(tmp_path, 3)
    assert store.revert(1) == 4
    assert (store.current().text, store.current().reason) == ("note 0", "revert to 1")
    assert len(list(store.versions())) == 5
    with pytest.raises(ConfigError, match=r"in 0\.\.4"):
        store.revert(9)


def test_an_episode_and_its_context_come_together_or_not_at_all(tmp_path):
    store = _lived(tmp_path, 1)
    store.add("t1", _solve(1), 0.0, None)
    unreadable = structs.replace(_update(1, "x"), context_after=None)
    with pytest.raises(DataError, match=r"agent[.]sqlite"):
        store.add("t1", unreadable, 0.0, "{}")
    assert len(list(store.episodes())) == 3
    assert store.current().text == "note 0"
    store.add("t1", _update(1, "y"), 0.0, "{}")
    assert store.current().text == "y"


def test_another_world_is_refused_with_what_differs(tmp_path):
    store = ContextStore(tmp_path)
    store.claim({"world": "levers-4", "stream": "test/0"})
    store.claim({"world": "levers-4", "stream": "test/0"})
    with pytest.raises(ConfigError, match="world was levers-4, is lake"):
        store.claim({"world": "lake", "stream": "test/0"})
    assert store.identity == {"world": "levers-4", "stream": "test/0"}


def test_a_policy_decides_from_when_it_was_first_named_or_another_was_asked_for(tmp_path):
    store = ContextStore(tmp_path)
    store.claim({"world": "levers-4"})
    store.claim({"world": "levers-4", "policy": "a"})
    with pytest.raises(ConfigError, match=r"policy was a, is b.*--accept_changes true"):
        store.claim({"world": "levers-4", "policy": "b"})
    with pytest.raises(ConfigError, match="policy was a, is None"):
        store.claim({"world": "levers-4"})
    store.claim({"world": "levers-4", "policy": "b"}, new_policy=True)
    store.claim({"world": "levers-4", "policy": "b"})
    with pytest.raises(ConfigError, match="world was levers-4, is doors"):
        store.claim({"world": "doors", "policy": "b"}, new_policy=True)


def test_no_store_is_made_where_it_should_be_there_and_a_new_one_has_one_empty_version(tmp_path):
    with pytest.raises(ConfigError, match=r"agent[.]sqlite"):
        ContextStore(tmp_path, create=False)
    assert not list(tmp_path.iterdir())
    store = ContextStore(tmp_path / "deep" / "state")
    assert [(v.version, v.text, v.reason, v.position) for v in store.versions()] == [(0, "", "start", None)]
    assert store.num_solved() == 0


def test_a_file_of_an_earlier_version_is_refused_with_the_remedy(tmp_path):
    _lived(tmp_path, 1).close()
    _edited(tmp_path, "UPDATE identity SET value = '4' WHERE key = 'schema'; ALTER TABLE contexts ADD COLUMN old TEXT")
    with pytest.raises(DataError, match="schema 4; this version reads schema 5"):
        ContextStore(tmp_path)


@each("content", [b"not a database" * 100, None])
def test_a_foreign_file_is_refused_by_name(tmp_path, content):
    if content is None:
        _edited(tmp_path, "CREATE TABLE identity (key TEXT, value TEXT); INSERT INTO identity VALUES ('schema', '99')")
    else:
        (tmp_path / "agent.sqlite").write_bytes(content)
    with pytest.raises(DataError, match=r"agent[.]sqlite"):
        ContextStore(tmp_path)


@each(
    ("damage", "said"),
    [
        ("UPDATE contexts SET reason = 'another' WHERE version = 2", "a row of contexts is not as it was written"),
        ("UPDATE episodes SET reward = 1.0 WHERE id = 3", "a row of episodes is not as it was written"),
        ("DELETE FROM contexts WHERE version = 3", "contexts"),
        ("DELETE FROM episodes WHERE id = 6", "episodes"),
        ("DELETE FROM identity WHERE key = 'rows'", "agent"),
        ("UPDATE identity SET value = 'lake' WHERE key = 'world'", "a row of identity is not as it was written"),
        ("DROP TABLE contexts", "no such table"),
    ],
)
def test_what_is_not_as_it_was_written_is_refused_in_one_line(tmp_path, damage, said):
    store = _lived(tmp_path, 3)
    store.claim({"world": "levers"})
    store.close()
    _edited(tmp_path, damage)

    def read():
        store = ContextStore(tmp_path)
        return list(store.versions()), list(store.episodes())

    with pytest.raises(DataError, match=said) as refused:
        read()
    assert "\n" not in str(refused.value)


@each(
    "planted",
    [
        "CREATE TRIGGER t AFTER INSERT ON episodes BEGIN UPDATE contexts SET text = ''; END",
        "CREATE VIEW v AS WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT * FROM r",
        "ALTER TABLE contexts RENAME TO c; CREATE VIEW contexts AS SELECT * FROM c, (WITH RECURSIVE r(x) AS "
        "(SELECT 1 UNION ALL SELECT x + 1 FROM r) SELECT * FROM r)",
        "CREATE INDEX i ON episodes (task COLLATE NOCASE)",
        "ALTER TABLE contexts ADD COLUMN more TEXT AS (hex(zeroblob(400000000)))",
    ],
)
def test_what_a_foreign_file_would_run_is_refused_before_a_table_is_read(planted, tmp_path):
    _lived(tmp_path, 2).close()
    _edited(tmp_path, planted)
    with pytest.raises(DataError, match="Name another --state"):
        ContextStore(tmp_path)


def _deep() -> bytes:
    return zlib.compress(b"[" * 10_000)


def _endless() -> bytes:
    return zlib.compress(b" " * (rows._LONGEST + 1))


@each("content", [lambda: packed({"status": "skipped"}), _deep, _endless, lambda: _deep()[:-1], lambda: b"no record"])
def test_a_record_that_no_episode_leaves_is_refused_in_one_line(tmp_path, monkeypatch, content):
    monkeypatch.setattr(rows, "_LONGEST", 10**5)
    store = _lived(tmp_path, 1)
    *row, _ = store._rows.db.execute("SELECT * FROM episodes WHERE id = 1").fetchone()
    row[-1] = content()
    store._rows.db.execute("DELETE FROM episodes WHERE id = 1")
    store._rows._insert("episodes", row)
    store.close()
    with pytest.raises(DataError, match="is damaged, or no store of an agent"):
        list(ContextStore(tmp_path).episodes())


def test_a_file_that_has_fewer_tasks_than_it_says_is_refused_before_they_are_drawn(tmp_path):
    store = _lived(tmp_path, 2)
    store._rows.set("rows", json.dumps(store._rows._nums() | {"solved": 10**12}))
    store.close()
    with pytest.raises(DataError, match="2 solved tasks are left of 1000000000000"):
        ContextStore(tmp_path)


@each("create", [True, False])
def test_a_foreign_journal_removes_no_other_file(tmp_path, create):
    ContextStore(tmp_path / "state").close()
    file, precious = tmp_path / "state" / "agent.sqlite", tmp_path / "precious"
    precious.write_text("kept")
    magic, name = bytes.fromhex("d9d505f920a163d7"), str(precious).encode()
    (page,) = struct.unpack(">H", file.read_bytes()[16:18])
    head = magic + struct.pack(">5I", 0, 0, file.stat().st_size // page, 512, page)
    end = struct.pack(">I", 2**30 // page + 1) + name + struct.pack(">2I", len(name), sum(name)) + magic
    journal = file.with_name("agent.sqlite-journal")
    journal.write_bytes(head.ljust(512, b"\0") + end)
    with pytest.raises(DataError, match="no journal of an agent"):
        ContextStore(tmp_path / "state", create=create)
    journal.unlink()
    for link in (journal, file.with_name("agent.sqlite-wal")):
        link.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(DataError, match="no journal of an agent"):
            ContextStore(tmp_path / "state", create=create)
        link.unlink()
    assert precious.read_text() == "kept"


@each("looked_at", ["lstat", "open"])
def test_an_agent_at_work_may_end_its_transaction_while_another_process_looks_at_its_journal(
    tmp_path, monkeypatch, looked_at
):
    ContextStore(tmp_path).close()
    (tmp_path / "agent.sqlite-journal").write_bytes(b"pages" * 100)
    look = getattr(Path, looked_at)

    def gone_meanwhile(path, *more):
        if path.name == "agent.sqlite-journal":
            path.unlink(missing_ok=True)
        return look(path, *more)

    with monkeypatch.context() as patched:
        patched.setattr(Path, looked_at, gone_meanwhile)
        store = ContextStore(tmp_path, create=False)
    assert not (tmp_path / "agent.sqlite-journal").exists()
    assert store.num_solved() == 0


def test_what_an_agent_at_work_adds_while_another_process_reads_is_no_damage(tmp_path):
    at_work, other = ContextStore(tmp_path), ContextStore(tmp_path)
    position = itertools.count()
    other._rows.db.set_trace_callback(lambda query: at_work.add("t", _solve(next(position)), 0.0, None))
    other._rows.open()
    assert len(other.rewards()) == next(position)


@each("create", [True, False])
def test_an_emptied_file_is_not_taken_for_a_new_agent(tmp_path, create):
    _lived(tmp_path, 3).close()
    (tmp_path / "agent.sqlite").write_bytes(b"")
    with pytest.raises(DataError, match="no agent's tables"):
        ContextStore(tmp_path, create=create)


def test_the_database_of_another_program_stays_as_it_is(tmp_path):
    theirs = sqlite3.connect(tmp_path / "theirs.sqlite")
    theirs.execute("PRAGMA journal_mode=WAL")
    theirs.execute("CREATE TABLE visits (place TEXT)")
    theirs.close()
    before = (tmp_path / "theirs.sqlite").read_bytes()
    (tmp_path / "agent.sqlite").symlink_to(tmp_path / "theirs.sqlite")
    with pytest.raises(DataError, match="no agent's tables"):
        ContextStore(tmp_path)
    assert (tmp_path / "theirs.sqlite").read_bytes() == before


def test_a_store_stays_where_it_is_when_a_world_goes_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = ContextStore("ada")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.add("t0", _solve(0), 0.0, None)
    assert store.path == tmp_path / "ada" / "agent.sqlite"
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_context_with_lone_surrogates_is_kept_without_them(tmp_path):
    store = ContextStore(tmp_path)
    store.add("t\ud800", _solve(0), 0.0, None)
    store.add("t0", _update(0, "a\ud800b"), 0.0, "{}")
    assert store.current().text == "a?b"


def test_a_commit_that_fails_leaves_the_store_as_it_was_and_usable(tmp_path):
    store = _lived(tmp_path, 1)

    class Failing:
        """A connection whose next COMMIT finds the disk full."""

        def __init__(self, db):
            self.db, self.fails = db, True

        def execute(self, statement, *more):
            if statement == "COMMIT" and self.fails:
                self.fails = False
                raise sqlite3.OperationalError("database or disk is full")
            return self.db.execute(statement, *more)

        def __getattr__(self, name):
            return getattr(self.db, name)

    store._rows.db = Failing(store._rows.db)
    with pytest.raises(DataError, match=r"cannot be used [(]database or disk is full"):
        store.add("t1", _solve(1), 0.0, None)
    assert store.num_solved() == 1
    store.add("t1", _solve(1), 0.0, None)
    assert store.num_solved() == 2


def test_a_clock_that_goes_back_changes_no_order(tmp_path, monkeypatch):
    clock = iter(range(10**6, 0, -1000))
    monkeypatch.setattr("time.time", lambda: float(next(clock)))
    _lived(tmp_path, 5).close()
    again = ContextStore(tmp_path, create=False)
    assert [one.version for one in again.versions()] == list(range(6))
    assert [one.created for one in again.versions()] == sorted((one.created for one in again.versions()), reverse=True)
    assert (again.current().text, again.num_solved()) == ("note 4", 5)
    assert [one.episode.position for one in again.episodes()] == [n // 2 for n in range(10)]
