"""Training curves from metrics.csv: grouped, joined over parts, thinned."""

from cod_lightning.reports.curves import read_curves
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
    assert [(line.label, line.y) for line in lines] == [("k = 1", [0.4]), ("k = 8", [0.9])]


def test_of_a_long_pack_the_first_positions_have_lines_and_then_doublings(tmp_path):
    names = [f"val/success/position_{n}" for n in range(256)] + [f"faults/{n}" for n in range(9)]
    (tmp_path / "metrics.csv").write_text(f"step,{','.join(names)}\n0{',0.5' * len(names)}\n")
    success, faults = read_curves(tmp_path)[0].values()
    assert [line.label for line in success] == [f"position {n}" for n in (0, 1, 2, 3, 7, 15, 31, 63, 127, 255)]
    assert len(faults) == 9


def test_a_name_may_hold_more_digits_than_python_reads(tmp_path):
    (tmp_path / "metrics.csv").write_text(f"step,a{'1' * 5_000},a{'1' * 4_999}2,a3\n0,1,2,3\n")
    assert [line.y for (line,) in read_curves(tmp_path)[0].values()] == [[3], [1], [2]]
