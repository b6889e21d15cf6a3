"""What `check` says of questions on disk: columns, rows, groups and splits, and what is wrong with them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from cod_lightning.envs.dataset import DatasetWorld
from cod_lightning.evaluation.conformance_data import check_data

ROWS = [{"prompt": f"q{n} of {g}", "answer": n, "group": g, "level": 1} for g in range(12) for n in range(g % 3 + 2)]


def checked(folder, rows, **settings):
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {one.rule: one for one in check_data(DatasetWorld(str(folder / "rows.jsonl"), **settings))}


def test_columns_rows_groups_and_splits_are_counted(tmp_path):
    found = checked(tmp_path, ROWS, group="group")
    assert not any(one.broken or one.look for one in found.values())
    columns, rows, groups, splits = (one.remark for one in found.values())
    assert columns == "prompt, answer, group; not read: level"
    assert rows == "36 rows"
    assert groups == "12 groups of 2 to 4 tasks"
    shares = [part.split() for part in splits.split(", ")]
    assert [name for name, *_ in shares] == ["train", "validation", "test"]
    assert sum(int(number) for _, number, *_ in shares) == 12
    assert sum(int(tasks[1:]) for *_, tasks, _ in shares) == 36


def test_parquet_and_folders_are_counted_alike(tmp_path):
    lines = checked(tmp_path, ROWS, group="group")
    (tmp_path / "parts").mkdir()
    for n, part in enumerate((ROWS[:20], ROWS[20:])):
        pq.write_table(pa.Table.from_pylist(part), tmp_path / "parts" / f"{n}.parquet")
    world = DatasetWorld(str(tmp_path / "parts"), group="group")
    assert list(check_data(world)) == list(lines.values())


def test_without_groups_splits_count_tasks(tmp_path):
    found = checked(tmp_path, ROWS)
    assert found["groups have several tasks"].remark.startswith("no column of groups")
    assert "task" in found["each split has tasks"].remark
    assert "(" not in found["each split has tasks"].remark


def test_equal_rows_are_a_remark(tmp_path):
    found = checked(tmp_path, [*ROWS, ROWS[0], ROWS[0]], group="group")["each row is a task of its own"]
    assert found.look
    assert found.remark == "38 rows, 36 tasks, since equal rows count once"


def test_a_group_of_one_task_is_an_error_with_its_place(tmp_path):
    lone = {"prompt": "q", "answer": 1, "group": "lone"}
    rule = "groups have several tasks"
    found = checked(tmp_path, [*ROWS, lone], group="group")[rule]
    assert found.broken == (f'group "lone" has one row, {tmp_path}/rows.jsonl:37',)
    assert found.remark == "13 groups of 1 to 4 tasks, 1 of them of one"
    assert checked(tmp_path, [*ROWS, lone, lone], group="group")[rule].broken, "the same row twice is one task"


def test_a_split_without_groups_is_an_error(tmp_path):
    found = checked(tmp_path, [row for row in ROWS if row["group"] < 2], group="group")["each split has groups"]
    assert found.broken[0].endswith("has none; 3 groups are enough for all")
