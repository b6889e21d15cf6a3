"""Lifecycles as a Parquet file."""

import math
import multiprocessing
import os
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from msgspec import structs

from cod_lightning.rollout.table import SCHEMA, TableWriter
from cod_lightning.rollout.transcript import episode_record
from cod_lightning.types import Episode, EpisodeStatus, Group, Lifecycle, Turn
from tests.cases import each
from tests.lifecycle_tables import read_lifecycles
from tests.records import group, lifecycle, pack, solve, turn, update

HOSTILE = "a\x00b\r\n\x1b[0m | ``` <script> \u2028 é 深 '' \"\""


def strange() -> Group:
    """Two tasks: one with odd numbers and texts and an update that did not parse; then a world that failed."""
    turns = (turn(HOSTILE, (-0.1, -1e-300, -math.pi)), structs.replace(turn("", ()), policy_version=-1))
    failed = structs.replace(solve(1, None, HOSTILE), error="RuntimeError: the world is broken")
    episodes = (solve(0, False, turns=turns), update(0, parsed=False, turns=(turn(),)), failed)
    return Group(pack=pack("strange", 2), lifecycles=(Lifecycle(pack_id="strange", sibling=3, episodes=episodes),))


def write(path: Path, groups: list[Group], row_group: int = 2048) -> Path:
    writer = TableWriter(path, "run", row_group)
    for one in groups:
        writer.add("predict", 40, one)
    writer.finish()
    return path


GROUPS = [group("a", [[True, False, None], [False, True, True]], context="left is up"), strange(), group("b", [[True]])]


@each("row_group", [1, 8, 2048])
def test_what_is_read_back_equals_the_lifecycles(tmp_path: Path, row_group: int) -> None:
    path = write(tmp_path / "x.parquet", GROUPS, row_group)
    assert list(read_lifecycles(path)) == [one for g in GROUPS for one in g.lifecycles]


def test_a_row_is_an_episode_with_flat_columns_that_are_described(tmp_path: Path) -> None:
    table = pq.read_table(write(tmp_path / "x.parquet", GROUPS))
    assert table.schema.equals(SCHEMA)
    assert all(field.metadata[b"description"] for field in table.schema)
    rows = table.to_pylist()
    episodes = [(g, one, e) for g in GROUPS for one in g.lifecycles for e in one.episodes]
    assert len(rows) == len(episodes)
    for row, (played, life, episode) in zip(rows, episodes, strict=True):
        assert (row["run"], row["label"], row["step"]) == ("run", "predict", 40)
        assert (row["pack_id"], row["split"], row["world_seed"]) == (played.pack.id, "validation", 7)
        assert (row["sibling"], row["task_id"]) == (life.sibling, played.pack.tasks[episode.position].id)
        assert (row["num_turns"], row["num_action_tokens"]) == (len(episode.turns), episode.num_action_tokens)
        record = episode_record(episode) | {"parts": dict(episode.parts) or None}
        assert {key: row[key] for key in record if key != "turns"} == {k: v for k, v in record.items() if k != "turns"}


def test_every_field_of_an_episode_and_of_a_turn_but_images_has_a_column() -> None:
    turns = SCHEMA.field("turns").type.value_type
    assert set(Episode.__struct_fields__) <= set(SCHEMA.names)
    assert set(Turn.__struct_fields__) - {"parts"} == {field.name for field in turns}


def test_a_missing_reward_is_null_and_the_policy_version_that_of_the_oldest_turn(tmp_path: Path) -> None:
    rows = pq.read_table(write(tmp_path / "x.parquet", [strange()])).to_pylist()
    assert [row["policy_version"] for row in rows] == [-1, 3, None]
    assert (rows[2]["reward"], rows[2]["success"], rows[2]["status"]) == (None, None, EpisodeStatus.FAILED)


def test_half_a_surrogate_pair_costs_one_character_and_not_the_file(tmp_path: Path) -> None:
    broken = lifecycle("c", (True,), context="")
    said = structs.replace(broken.episodes[0], feedback="file \udcff")
    life = structs.replace(broken, episodes=(said,))
    path = write(tmp_path / "x.parquet", [Group(pack=pack("c", 1), lifecycles=(life,))])
    assert next(read_lifecycles(path)).episodes[0].feedback == "file ?"


def test_memory_holds_about_one_row_group(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path / "x.parquet", "run", 10)
    for index in range(50):
        writer.add("predict", 0, group(str(index), [[True, True]]))
        assert len(writer._rows) < 10
    writer.finish()
    file = pq.ParquetFile(tmp_path / "x.parquet")
    assert file.num_row_groups == 13
    assert file.metadata.num_rows == 150


def test_a_failure_leaves_the_earlier_file_and_no_draft(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", GROUPS)
    before = path.read_bytes()
    writer = TableWriter(path, "run", 1)
    with pytest.raises(IndexError):
        writer.add("predict", 0, Group(pack=pack("a", 0), lifecycles=GROUPS[0].lifecycles))
    writer.discard()
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["x.parquet"]


def _killed(path: Path) -> None:
    writer = TableWriter(path, "run", 1)
    writer.add("predict", 0, GROUPS[0])
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_kill_leaves_the_earlier_file_and_the_next_writer_starts_anew(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", GROUPS)
    before = path.read_bytes()
    process = multiprocessing.get_context("spawn").Process(target=_killed, args=(path,))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert path.read_bytes() == before
    write(path, GROUPS[:1])
    assert len(list(read_lifecycles(path))) == 2
    assert os.listdir(tmp_path) == ["x.parquet"]
