"""`report` on the command line."""

import re

from cod_lightning.cli import main
from tests.cases import each
from tests.records import group
from tests.reports.made_runs import write_run

GROUPS = [group("a", [[True, False], [False, True]])]


def test_the_report_lies_in_the_runs_folder_and_is_named(tmp_path, capsys):
    folder = write_run(tmp_path / "one", GROUPS)
    assert main(["report", str(folder)]) == 0
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert f"{folder / 'report.html'} (0.0 MB, 2 lifecycles)" in capsys.readouterr().out


def test_several_runs_make_one_report_at_the_place_that_is_asked_for_or_beside_the_first_one_s_own(tmp_path, capsys):
    folders = [str(write_run(tmp_path / name, GROUPS)) for name in ("one", "two")]
    assert main(["report", *folders]) == 0
    assert f"{tmp_path / 'one' / 'compared.html'} (" in capsys.readouterr().out
    assert not (tmp_path / "one" / "report.html").exists()
    out = tmp_path / "new" / "both.html"
    assert main(["report", *folders, "--out", str(out)]) == 0
    assert [path.name for path in out.parent.iterdir()] == ["both.html"]


def test_what_was_left_out_is_said_in_lines_that_no_name_ends(tmp_path, capsys):
    folder = write_run(tmp_path, GROUPS)
    (folder / "lifecycles" / "x\nnote: all is well.jsonl").write_text("{")
    assert main(["report", str(folder)]) == 0
    note, _ = capsys.readouterr().out.splitlines()
    assert re.search(r"^note: .*x note: all is well\.jsonl: 1 line was left out", note)


@each("out", ["one/config.yaml/report.html", "x" * 300])
def test_a_report_that_cannot_be_written_is_a_mistake_in_one_line(tmp_path, capsys, out):
    folder = write_run(tmp_path / "one", GROUPS)
    assert main(["report", str(folder), "--out", str(tmp_path / out)]) == 2
    assert "--out" in capsys.readouterr().err


def test_a_folder_gets_the_report_under_its_usual_name(tmp_path):
    folder = write_run(tmp_path / "one", GROUPS)
    (tmp_path / "folder").mkdir()
    assert main(["report", str(folder), "--out", str(tmp_path / "folder")]) == 0
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["report.html"]
