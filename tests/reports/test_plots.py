"""Curves as files."""

import pytest

from cod_lightning.reports.plots import write_plots
from cod_lightning.reports.report import read_runs
from cod_lightning.reports.suite_plots import change_figure, recovery_figure, regret_figure
from tests.records import group
from tests.reports.made_runs import write_config, write_run

GROUPS = [group("a", [[True, False], [False, True]])]


@pytest.mark.slow
def test_all_figures_are_written_as_png_and_svg_beside_the_report(tmp_path):
    runs = read_runs([write_run(tmp_path / name, GROUPS) for name in ("one", "two")])
    written = write_plots(runs, tmp_path / "report.html")
    names = ("success", "regret", "recovery", "change", "training")
    assert [path.name for path in written] == [f"report_{name}.{kind}" for name in names for kind in ("png", "svg")]
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in written[1].read_text()


def test_what_cannot_be_drawn_is_not_written(tmp_path):
    write_config(tmp_path)
    assert write_plots(read_runs([tmp_path]), tmp_path / "report.html") == []


def test_regret_and_recovery_are_drawn_at_their_places(tmp_path):
    runs = read_runs([write_run(tmp_path / "one", GROUPS)])
    regret, recovery, change = regret_figure(runs), recovery_figure(runs), change_figure(runs)
    assert regret is not None
    assert recovery is not None
    assert change is not None
    assert [bar.lines[0].get_xydata().tolist() for bar in regret.axes[0].containers] == [[[0, 0.5], [1, 0.1]]]
    lines = [bar.lines[0].get_xydata().tolist() for bar in recovery.axes[0].containers]
    assert lines == [[[-1, 0.8], [0, 0.3], [1, 0.55]], [[-1, 0.4], [0, 0.4], [1, 0.4]]]
    assert [bar.lines[0].get_xydata().tolist() for bar in change.axes[0].containers] == [[[0, -0.5], [1, 0.25]]]
