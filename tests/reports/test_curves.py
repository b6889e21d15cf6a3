"""What a report is made of: curves from metrics.csv, grouped and thinned; charts as laid out; lifecycles read leniently."""

import json
import math
import re
from pathlib import Path

import pytest

from cod_lightning.reports.charts import Line, chart
from cod_lightning.reports.curves import in_training, read_curves, read_metrics
from cod_lightning.reports.lines import UNREAD, LifecycleFile
from cod_lightning.rollout import transcript
from tests.cases import each
from tests.records import group
from tests.reports.made_runs import write_metrics


def test_columns_are_grouped_into_panels_in_a_sensible_order(tmp_path):
    write_metrics(tmp_path)
    panels, notes = read_curves(tmp_path)
    assert list(panels) == ["Reward in training", "Seconds", "mine"]
    assert [line.label for line in panels["Reward in training"]] == ["position 0", "position 1"]
    assert panels["mine"][0].y == [0, 1, 2, 3, 4, 5]
    assert notes == []


def test_the_later_row_of_a_step_counts_what_is_no_number_is_left_out_and_a_missing_file_is_said(tmp_path):
    assert "no metrics.csv" in read_curves(tmp_path)[1][0]
    (tmp_path / "metrics.csv").write_text("step,mine\n4,4\n5,5\n4,40\n")
    assert read_curves(tmp_path)[0]["mine"][0].y == [40, 5]
    (tmp_path / "metrics.csv").write_bytes(b"step,mine\n0,1\nxx,2\n2,nan\n3,oops\n4,5,6,7\n\x00\xff\n6")
    panels, notes = read_curves(tmp_path)
    assert panels["mine"][0].x == [0, 4]
    assert notes == ["2 rows of metrics.csv have no step and were left out."]
    (tmp_path / "metrics.csv").write_text("step,mine\n0,1e-5\n1,2")  # of 2e-5, when the run was killed
    assert read_curves(tmp_path)[0]["mine"][0].y == [1e-5]
    (tmp_path / "metrics.csv").write_text("")
    assert read_curves(tmp_path) == ({}, ["metrics.csv holds no numbers."])


def test_a_long_run_is_thinned_and_keeps_its_ends(tmp_path):
    write_metrics(tmp_path, range(12_345))
    (line,) = read_curves(tmp_path)[0]["mine"]
    assert len(line.x) <= 401
    assert (line.x[0], line.x[-1]) == (0, 12_344)


def test_position_ten_comes_after_nine_and_pass_at_1_and_at_k_are_lines_of_one_titled_panel(tmp_path):
    names = [f"val/success/position_{n}" for n in (10, 9, 0)]
    (tmp_path / "metrics.csv").write_text(f"step,{','.join(names)}\n0,0.1,0.2,0.3\n")
    (panel,) = read_curves(tmp_path)[0].values()
    assert [line.label for line in panel] == ["position 0", "position 9", "position 10"]
    (tmp_path / "metrics.csv").write_text("step,train/pass_at/8,train/pass_at/1\n0,0.9,0.4\n")
    ((title, lines),) = read_curves(tmp_path)[0].items()
    assert title.startswith("Tasks solved in training")
    assert [(line.label, line.y) for line in lines] == [("1", [0.4]), ("8", [0.9])]


def test_of_a_long_pack_the_first_positions_have_lines_and_then_doublings(tmp_path):
    names = [f"val/success/position_{n}" for n in range(256)] + [f"faults/{n}" for n in range(9)]
    (tmp_path / "metrics.csv").write_text(f"step,{','.join(names)}\n0{',0.5' * len(names)}\n")
    success, faults = read_curves(tmp_path)[0].values()
    assert [line.label for line in success] == [f"position {n}" for n in (0, 1, 2, 3, 7, 15, 31, 63, 127, 255)]
    assert len(faults) == 9


def test_a_name_may_hold_more_digits_than_python_reads(tmp_path):
    (tmp_path / "metrics.csv").write_text(f"step,a{'1' * 5_000},a{'1' * 4_999}2,a3\n0,1,2,3\n")
    assert [line.y for (line,) in read_curves(tmp_path)[0].values()] == [[3], [1], [2]]


def test_a_training_is_summed_up_by_its_first_update_and_its_last_quarter(tmp_path):
    rows = [f"{n},{0.5 + n / 100},{0.9},{1 - n / 10}" for n in range(8)]
    header = "step,train/pass_at/1,train/pass_at/8,train/entropy"
    (tmp_path / "metrics.csv").write_text("\n".join([header, *rows]) + "\n")
    said = in_training(read_metrics(tmp_path)[0])
    assert said == (
        "In training, first update to last quarter: pass@1 0.500 to 0.565, pass@8 0.900 to 0.900, entropy 1.000 to 0.350 "
        "(nats a token)."
    )


def test_what_was_not_logged_is_left_out(tmp_path):
    assert in_training(read_metrics(tmp_path)[0]) == ""
    only = {"train/entropy": {0: 1.0, 1: 0.5}}
    said = in_training(only)
    assert said == "In training, first update to last quarter: entropy 1.000 to 0.500 (nats a token)."


def test_a_training_that_ends_while_success_rises_is_said_to_have_ended_early():
    def said(*ends):
        columns = {f"val/success/position_{k}": {9: 0.1, 19: end - gain, 29: end} for k, (end, gain) in enumerate(ends)}
        return in_training(columns)

    assert "rose by +0.040 from the last validation but one" in said((0.5, 0.0), (0.7, 0.08))
    assert said((0.5, 0.0), (0.7, 0.02)) == ""
    assert in_training({"val/success/position_0": {9: 0.9}}) == ""


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
    assert file.left_out == {UNREAD: 8}


def _line(*y: float | None, **more) -> Line:
    return Line(label="a", x=list(range(len(y))), y=list(y), **more)


def test_a_missing_point_is_a_gap_and_a_line_without_numbers_is_not_drawn():
    made = chart("t", [_line(0.0, None, 1.0, 0.5), _line(None, None)])
    (drawn,) = made["lines"]
    assert drawn["path"].count("M") == 2
    assert json.loads(drawn["points"]) == [[0, 0.0], [2, 1.0], [3, 0.5]]
    assert chart("t", [_line(None)])["lines"] == []


@each(
    "y",
    [
        (1e300, 1.0),
        (-1e308, 1e308),
        (1e-320, 2e-320),
        (5e-324, 0.0),
        (0.0, 0.0),
        (7.0, 7.0),
        (-3.0, -3.0),
        (9e14, -9e14),
    ],
)
def test_absurd_values_have_a_chart_all_the_same(y):
    made = chart("t", [_line(*y, ci95=[y])])
    assert all(0 <= place <= made["high"] for _, place in made.get("rows", []))


def test_intervals_of_lines_stand_side_by_side_and_what_is_beyond_the_bounds_is_within_the_axis():
    lines = [_line(0.5, 1.2, ci95=[(0.4, 0.6), None]) for _ in range(2)]
    made = chart("t", lines, bounds=(0.0, 1.0), large=True)
    one, other = (line["whiskers"] for line in made["lines"])
    (x, low, high), (later, *_) = (list(map(float, re.findall(r"[\d.]+", path))) for path in (one, other))
    assert x < later
    assert low > high
    assert min(y for _, y in made["rows"]) >= 0
    assert math.isclose(float(made["x_scale"].split()[3]), 1)


@pytest.mark.parametrize("steps", [1, 2, 10_000])
def test_steps_are_whole_numbers(steps):
    made = chart("t", [_line(*[0.5] * steps)])
    assert all("." not in text for text, _ in made["columns"])
