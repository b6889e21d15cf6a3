"""One job: how its end is written down, whatever the end is."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cod_lightning.commands import sweep_job
from cod_lightning.commands.sweep_job import command, run_job
from cod_lightning.errors import DataError
from cod_lightning.reports.sweeps.record import JobRecord, JobStatus, read_record, write_record
from tests.cases import each

JOB = JobRecord(
    label="cell seed=1",
    config="smoke",
    overrides=("credit=TaskCredit",),
    setting={"credit": "task"},
    seed=1,
)


WHOLE = "import pathlib; [pathlib.Path(name).write_text('{}') for name in ('evaluation.json', 'report.html')];"


def ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, record: JobRecord = JOB) -> JobRecord:
    """The record after a process that runs this code."""
    monkeypatch.chdir(tmp_path)
    write_record(tmp_path, record)

    def stand_in(folder: Path, *, resumes: bool = False) -> list[str]:
        return [sys.executable, "-c", code]

    monkeypatch.setattr(sweep_job, "command", stand_in)
    found = run_job(tmp_path, "[1/2] ")
    assert read_record(tmp_path) == found
    return found


def test_a_job_that_ends_well_is_finished_and_its_cost_is_written_down(monkeypatch, tmp_path, capsys) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "log.txt").symlink_to(tmp_path / "precious")
    found = ends(monkeypatch, tmp_path, WHOLE + "x = bytearray(60_000_000); print('done')")
    assert (found.status, found.error, found.num_attempts) == (JobStatus.FINISHED, None, 1)
    assert found.wall_s > 0
    assert found.cpu_s > 0
    assert found.peak_mib > 60
    first, last = capsys.readouterr().out.splitlines()
    assert first == "[1/2] cell seed=1: begins"
    assert last.startswith("[1/2] cell seed=1: finished in ")
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
    ],
)
def test_a_job_that_fails_is_written_down_in_one_line_and_raises_nothing(monkeypatch, tmp_path, code, said) -> None:
    found = ends(monkeypatch, tmp_path, code)
    assert (found.status, found.error) == (JobStatus.FAILED, said)


@each(
    ("code", "said"),
    [
        ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL (out of memory?)"),
        ("print('Lightning ends with 0 after a SIGTERM')", "it ended before its evaluation did"),
    ],
)
def test_a_job_that_a_signal_ends_is_not_finished_and_goes_on_the_next_time(monkeypatch, tmp_path, code, said) -> None:
    for name in ("evaluation.json", "report.html"):
        (tmp_path / name).write_text("of an earlier attempt")
    found = ends(monkeypatch, tmp_path, code)
    assert found.status is JobStatus.INTERRUPTED
    assert str(found.error).startswith(said)


def test_threads_are_set_for_every_library(monkeypatch, tmp_path) -> None:
    ends(monkeypatch, tmp_path, "import os; print(os.environ['OMP_NUM_THREADS'])", replace(JOB, threads=3))
    assert (tmp_path / "log.txt").read_text() == "3\n"


def test_an_interrupted_job_goes_on_from_its_checkpoint_and_its_seconds_add_up(monkeypatch, tmp_path, capsys) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    interrupted = replace(JOB, status=JobStatus.RUNNING, num_attempts=1, wall_s=100.0, peak_mib=1e6)
    found = ends(monkeypatch, tmp_path, WHOLE, interrupted)
    assert "goes on from its last checkpoint" in capsys.readouterr().out
    assert found.num_attempts == 2
    assert 100 < found.wall_s < 160
    assert found.peak_mib == 1e6


def test_a_job_that_had_failed_begins_anew(monkeypatch, tmp_path, capsys) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    found = ends(monkeypatch, tmp_path, WHOLE, replace(JOB, status=JobStatus.FAILED, error="no", wall_s=100.0))
    assert "begins" in capsys.readouterr().out
    assert found.wall_s < 60
    assert found.error is None


def test_a_job_that_had_failed_begins_anew_also_if_it_is_killed_before_its_first_checkpoint(
    monkeypatch, tmp_path, capsys
) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.ckpt").touch()
    killed = ends(monkeypatch, tmp_path, "import os; os.kill(os.getpid(), 9)", replace(JOB, status=JobStatus.FAILED))
    assert killed.status is JobStatus.INTERRUPTED
    ends(monkeypatch, tmp_path, WHOLE, killed)
    assert "goes on" not in capsys.readouterr().out


def test_what_a_job_runs_can_be_typed() -> None:
    folder = Path("jobs/one")
    line = [sys.executable, "-m", "cod_lightning", "fit", "--config", "jobs/one/job.yaml"]
    line += ["--trainer.default_root_dir", "jobs/one"]
    assert command(folder) == [*line, "--overwrite", "true"]
    assert command(folder, resumes=True) == [*line, "--ckpt_path", "last"]


def test_a_damaged_record_is_named(tmp_path) -> None:
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(DataError, match=r"job\.json is no job of a sweep"):
        read_record(tmp_path)


def test_a_sweep_that_is_stopped_ends_its_job_which_stays_to_be_gone_on_with(monkeypatch, tmp_path) -> None:
    children: list[int] = []

    def stopped(pid: int, options: int) -> None:
        children.append(pid)
        raise SystemExit(143)

    monkeypatch.setattr(sweep_job.os, "wait4", stopped)
    with pytest.raises(SystemExit):
        ends(monkeypatch, tmp_path, "import time; time.sleep(60)")
    assert read_record(tmp_path).status is JobStatus.RUNNING
    assert not Path(f"/proc/{children[0]}").exists()
