"""Files that commands write into folders of others."""

import os
import threading

import pytest

from cod_lightning.cli import main
from cod_lightning.whole_file import write_whole
from tests.records import group
from tests.reports.made_runs import write_run


def test_a_file_is_there_as_a_whole_and_a_failure_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "new" / "file"
    write_whole(path, "one")
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()

    def fails(*_):
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="no space"):
        write_whole(path, "two")
    assert path.read_text() == "one"
    assert [one.name for one in path.parent.iterdir()] == ["file"]


def _umask():
    now = os.umask(0)
    os.umask(now)
    return now


def test_a_link_is_replaced_and_a_pipe_is_written_to(tmp_path):
    (tmp_path / "precious").write_text("precious")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "precious")
    write_whole(link, b"mine")
    assert (link.read_text(), (tmp_path / "precious").read_text()) == ("mine", "precious")
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()))
    reader.start()
    write_whole(tmp_path / "pipe", "shown")
    reader.join()
    assert read == ["shown"]


@pytest.mark.slow
def test_a_report_of_a_foreign_run_writes_through_none_of_its_links(tmp_path, capsys):
    run = write_run(tmp_path / "run", [group("a", [[True, False], [False, True]])])
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for name in ("report.html", "report_success.png", "report_training.svg"):
        (run / name).symlink_to(precious)
    assert main(["report", str(run), "--plots"]) == 0
    assert precious.read_text() == "precious"
    assert (run / "report.html").read_text().startswith("<!DOCTYPE html>")
