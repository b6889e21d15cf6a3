"""The file of a deployed agent."""

import sqlite3

import pytest
from msgspec import structs

from cod_lightning.deployment import ContextStore
from cod_lightning.errors import ConfigError, DataError
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus


def _solve(position: int, reward: float | None = 1.0) -> Episode:
    failed = reward is None
    return Episode(
        kind=EpisodeKind.SOLVE,
        position=position,
        status=EpisodeStatus.FAILED if failed else EpisodeStatus.COMPLETED,
        reward=reward,
        success=None if failed else reward > 0,
        feedback="fine",
        error="boom" if failed else "",
    )


def _update(position: int, text: str) -> Episode:
    return Episode(
        kind=EpisodeKind.UPDATE,
        position=position,
        status=EpisodeStatus.COMPLETED,
        reward=0.0,
        success=True,
        context_after=text,
    )


def _lived(folder, num: int) -> ContextStore:
    store = ContextStore(folder)
    for n in range(num):
        store.add_solve(f"t{n}", _solve(n, reward=n / 10), began=100.0 + n)
        store.add_update(f"t{n}", _update(n, f"note {n}"), began=100.5 + n)
    return store


def test_a_new_store_has_one_empty_version(tmp_path):
    store = ContextStore(tmp_path / "deep" / "state")
    assert [(v.version, v.text, v.reason, v.position) for v in store.versions()] == [(0, "", "start", None)]
    assert store.num_solved() == 0
    assert store.awaiting_update() is None


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
    assert next(s.episode for s in store.episodes()) == _solve(0, 0.0)
    assert all(s.ended >= s.began for s in store.episodes())


def test_going_back_is_a_new_version(tmp_path):
    store = _lived(tmp_path, 3)
    assert store.revert(1) == 4
    assert (store.current().text, store.current().reason) == ("note 0", "revert to 1")
    assert len(store.versions()) == 5
    with pytest.raises(ConfigError, match=r"in 0\.\.4"):
        store.revert(9)


def test_an_episode_and_its_context_come_together_or_not_at_all(tmp_path):
    store = _lived(tmp_path, 1)
    store.add_solve("t1", _solve(1), began=0.0)
    unreadable = structs.replace(_update(1, "x"), context_after=None)
    with pytest.raises(DataError, match=r"agent[.]sqlite"):
        store.add_update("t1", unreadable, began=0.0)
    assert len(store.episodes()) == 3
    assert store.current().text == "note 0"
    store.add_update("t1", _update(1, "y"), began=0.0)
    assert store.current().text == "y"


def test_a_task_is_stored_once(tmp_path):
    store = _lived(tmp_path, 1)
    with pytest.raises(DataError, match=r"agent[.]sqlite"):
        store.add_solve("t0", _solve(0), began=0.0)


def test_a_task_that_ended_without_a_rewrite_awaits_it_unless_it_failed(tmp_path):
    store = _lived(tmp_path, 1)
    store.add_solve("t1", _solve(1), began=0.0)
    waiting = store.awaiting_update()
    assert waiting is not None
    assert waiting.episode.position == 1
    store.add_update("t1", _update(1, "x"), began=0.0)
    assert store.awaiting_update() is None
    store.add_solve("t2", _solve(2, reward=None), began=0.0)
    assert store.awaiting_update() is None
    assert store.episodes()[-1].episode.reward is None


def test_another_world_is_refused_with_what_differs(tmp_path):
    store = ContextStore(tmp_path)
    store.claim({"world": "levers-4", "stream": "test/0"})
    store.claim({"world": "levers-4", "stream": "test/0"})
    with pytest.raises(ConfigError, match="world was levers-4, is lake"):
        store.claim({"world": "lake", "stream": "test/0"})
    assert store.identity == {"world": "levers-4", "stream": "test/0"}


def test_a_missing_store_is_refused_where_none_shall_be_made(tmp_path):
    with pytest.raises(ConfigError, match=r"agent[.]sqlite"):
        ContextStore(tmp_path, create=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"not a database" * 100, None])
def test_a_foreign_file_is_refused_by_name(tmp_path, content):
    path = tmp_path / "agent.sqlite"
    if content is None:
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE identity (key TEXT, value TEXT)")
        other.execute("INSERT INTO identity VALUES ('schema', '99')")
        other.commit()
        other.close()
    else:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"agent[.]sqlite"):
        ContextStore(tmp_path)
