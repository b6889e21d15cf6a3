"""One job: how its end is written down, whatever the end is."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cod_lightning.commands import sweep_job
from cod_lightning.commands.sweep_job import command, run_job
from cod_lightning.errors import DataError
from cod_lightning.reports.sweeps.record import JobRecord, read_record, write_record
from tests.cases import each

JOB = JobRecord(label="cell seed=1", config="smoke", overrides=("credit=TaskCredit",), cell="0", seed=1)
WHOLE = "import pathlib; pathlib.Path('report.html').write_text('');"


def ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, record: JobRecord = JOB) -> JobRecord:
    """The record after a process that runs this code."""
    monkeypatch.chdir(tmp_path)
    write_record(tmp_path, record)
    monkeypatch.setattr(sweep_job, "command", lambda folder: [sys.executable, "-c", code])
    run_job(tmp_path, "[1/2] ")
    return read_record(tmp_path)


def test_a_job_that_ends_well_is_finished(monkeypatch, tmp_path, capsys) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "log.txt").symlink_to(tmp_path / "precious")
    found = ends(monkeypatch, tmp_path, WHOLE + "print('done')", replace(JOB, error="killed by SIGTERM"))
    assert found == replace(JOB, finished=True)
    first, last = capsys.readouterr().out.splitlines()
    assert first == f"[1/2] cell seed=1: begins; what it prints is in {tmp_path / 'log.txt'}"
    assert last.startswith("[1/2] cell seed=1: finished (")
    assert [(tmp_path / name).read_text() for name in ("log.txt", "precious")] == ["done\n", "precious"]


@each(
    ("code", "said"),
    [
        (
            "import sys; print('error: model.lr is 0; expected more', file=sys.stderr); sys.exit(2)",
            "model.lr is 0; expected more",
        ),
        ("raise KeyError('gone')", "KeyError: 'gone'"),
        ("import sys; sys.exit(4)", "it wrote no output"),
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL (out of memory?)"),
        ("print('Lightning ends with 0 after a SIGTERM')", "it ended before its evaluation did (stopped by a signal?)"),
    ],
)
def test_a_job_that_ends_early_is_written_down_in_one_line_and_raises_nothing(
    monkeypatch, tmp_path, code, said
) -> None:
    (tmp_path / "report.html").write_text("of an earlier attempt")
    assert ends(monkeypatch, tmp_path, code) == replace(JOB, error=said)


def test_a_job_begins_or_goes_on_by_one_command_that_can_be_typed() -> None:
    line = [sys.executable, "-m", "cod_lightning", "fit", "--config", "jobs/one/job.yaml"]
    assert command(Path("jobs/one")) == [*line, "--trainer.default_root_dir", "jobs/one", "--ckpt_path", "auto"]


def test_a_damaged_record_is_named(tmp_path) -> None:
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(DataError, match=r"job\.json is no job of a sweep"):
        read_record(tmp_path)


def test_a_sweep_that_is_stopped_ends_its_job(monkeypatch, tmp_path) -> None:
    children = []

    class Stopping(sweep_job.subprocess.Popen):
        def wait(self, timeout=None):
            children.append(self.pid)
            if len(children) == 1:
                raise SystemExit(143)
            return super().wait(timeout)

    monkeypatch.setattr(sweep_job.subprocess, "Popen", Stopping)
    with pytest.raises(SystemExit):
        ends(monkeypatch, tmp_path, "import time; time.sleep(60)")
    assert not read_record(tmp_path).finished
    assert not Path(f"/proc/{children[0]}").exists()
