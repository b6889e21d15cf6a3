"""Lifecycles read leniently: what is damaged is counted, the rest is kept."""

import json
from pathlib import Path

from cod_lightning.reports.lines import LifecycleFile
from cod_lightning.rollout import transcript
from tests.records import group


def _write(path: Path, *lines: str | bytes) -> LifecycleFile:
    path.write_bytes(b"\n".join(line.encode() if isinstance(line, str) else line for line in lines))
    return LifecycleFile(path)


def test_torn_and_foreign_lines_are_counted_by_reason_and_the_others_kept(tmp_path):
    first, second = transcript.dump(group("a", [[True, False], [False, True]]))
    older = json.dumps(json.loads(first) | {"schema": 0})
    damaged = json.dumps(json.loads(first) | {"episodes": [{"kind": "nap"}]})
    unordered = json.dumps(json.loads(second) | {"sibling": "x"})
    torn = second[: len(second) // 2]
    file = _write(tmp_path / "x.jsonl", first, older, damaged, b"\xff\xfe", "[]", "null", "", unordered, second, torn)
    (played,) = file.groups()
    assert [life.sibling for life in played.group.lifecycles] == [0, 1]
    assert file.left_out == {"schema 0, not 4": 1, "torn or damaged": 6}


def test_of_a_larger_file_whole_groups_are_read_and_a_pack_that_was_played_again_is_another_one(tmp_path):
    played = [group("a", [[True, False], [False, True]])] * 8
    lines = [line for step, one in enumerate(played) for line in transcript.dump(one, step=step)]
    file = _write(tmp_path / "x.jsonl", *lines)
    kept = list(file.groups(file.path.stat().st_size // 2))
    assert [one.step for one in kept] == [0, 3, 5, 7]
    assert {len(one.group.lifecycles) for one in kept} == {2}
    assert file.num_unread == 8
