"""Processes of a foreign program are found and ended, whatever they are doing at the moment."""

import os
import signal

import pytest

from cod_lightning.envs import foreign_process
from cod_lightning.envs.foreign_process import MARK, end_marked


@pytest.fixture
def processes(tmp_path, monkeypatch):
    """A stand-in of /proc: `processes(PID, environment, command line)` puts a process there; `killed` has the signals."""
    monkeypatch.setattr(foreign_process, "_PROC", tmp_path)

    def put(pid, environment=b"", command=b""):
        folder = tmp_path / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "environ").write_bytes(environment)
        (folder / "cmdline").write_bytes(command)
        if not (folder / "exe").is_symlink():
            (folder / "exe").symlink_to("/bin/sleep")

    def kill(pid, number):
        put.killed.append((pid, number))
        put(pid, b"", b"")  # what is being ended has neither
        (tmp_path / str(pid) / "exe").unlink()

    put.killed = []
    monkeypatch.setattr(os, "kill", kill)
    return put


def test_a_process_with_the_mark_is_ended_and_no_other(processes):
    processes(10, f"A=1\0{MARK}=mine\0".encode(), b"a")
    processes(11, f"{MARK}=other\0".encode(), b"b")
    processes(12, b"", b"started with an empty environment")
    end_marked("mine")
    assert processes.killed == [(10, signal.SIGKILL)]


@pytest.mark.parametrize("stages", [[(b"", b"")] * 3, [(b"", b""), (b"", b"sleep\0"), (b"", b"sleep\0")]])
def test_a_process_that_is_just_being_started_is_looked_at_again(processes, monkeypatch, stages):
    """Between the old program and the new one it has no environment, and for a moment a command line already."""
    then = [*stages[1:], (f"{MARK}=mine\0".encode(), b"sleep\0")]
    processes(10, *stages[0])
    monkeypatch.setattr(foreign_process.time, "sleep", lambda seconds: processes(10, *then.pop(0)) if then else None)
    end_marked("mine")
    assert processes.killed == [(10, signal.SIGKILL)]


def test_a_process_that_never_gets_an_environment_is_not_waited_for_longer_than_two_seconds(processes, monkeypatch):
    clock = iter(range(10_000))
    monkeypatch.setattr(foreign_process.time, "monotonic", lambda: next(clock) / 1000)
    monkeypatch.setattr(foreign_process.time, "sleep", lambda seconds: None)
    processes(10, b"", b"")
    end_marked("mine")
    assert processes.killed == []
    assert 2000 <= next(clock) < 2010
