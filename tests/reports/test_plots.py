"""Curves as files."""

from cod_lightning.reports.plots import write_plots
from cod_lightning.reports.report import read_runs
from tests.records import group
from tests.reports.made_runs import write_config, write_run

GROUPS = [group("a", [[True, False], [False, True]])]


def test_both_figures_are_written_as_png_and_svg_beside_the_report(tmp_path):
    runs = read_runs([write_run(tmp_path / name, GROUPS) for name in ("one", "two")])
    written = write_plots(runs, tmp_path / "report.html")
    assert [path.name for path in written] == [
        "report_success.png", "report_success.svg", "report_training.png", "report_training.svg",
    ]  # fmt: skip
    assert written[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in written[1].read_text()


def test_what_cannot_be_drawn_is_not_written(tmp_path):
    write_config(tmp_path)
    assert write_plots(read_runs([tmp_path]), tmp_path / "report.html") == []
