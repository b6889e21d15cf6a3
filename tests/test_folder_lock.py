"""One process at a time in a run's or an agent's folder."""

import os
import signal
import subprocess
import sys

import pytest

from cod_lightning.errors import ConfigError
from cod_lightning.files import LOCK, check_folder, locked
from tests.cases import each
from tests.command_line import ROOT, cod

HOLD = "import sys, time; from pathlib import Path; from cod_lightning.files import locked\n"
HOLD += "with locked(Path(sys.argv[1]), 'key', 'fit'):\n    print('held', flush=True); time.sleep(60)"


@each(
    ("name", "message"),
    [
        *(("file", "expected a folder"), ("file/in", "and .*/file is a file"), ("/proc/x", "in /proc")),
        ("caf\udce9", "a folder with a name in UTF-8"),
    ],
)
def test_a_place_that_cannot_be_a_folder_is_refused_and_nothing_is_left_there(tmp_path, name, message):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=f"--state is .*{message}.*Name another one"):
        check_folder(tmp_path / name, "--state")
    check_folder(tmp_path / "new" / "run", "--state")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_the_second_is_refused_in_one_line_that_names_the_first(tmp_path, holder):
    for _ in range(2):  # a refusal leaves the holder's name where it is
        with pytest.raises(ConfigError) as refused, locked(tmp_path, "--state", "deploy"):
            pass
        said = str(refused.value)
        assert said.startswith(f"--state is {tmp_path}; expected a folder in which no other deploy runs (process")
        assert f"process {holder.pid} on " in said
        assert "\n" not in said


def test_the_system_frees_the_lock_of_a_killed_process(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with locked(tmp_path, "--state", "deploy"):
        assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()} on ")


def test_the_lock_is_free_after_an_error_within(tmp_path):
    for _ in range(2):
        with pytest.raises(ValueError, match="inside"), locked(tmp_path, "--state", "deploy"):
            raise ValueError("inside")


@each("variable", ["LOCAL_RANK", "RANK", "NODE_RANK", "SLURM_PROCID"])
def test_only_the_first_rank_of_a_run_holds_it(tmp_path, monkeypatch, variable):
    with locked(tmp_path, "key", "fit"):
        monkeypatch.setenv(variable, "1")
        with locked(tmp_path, "key", "fit"):
            pass
    monkeypatch.setenv(variable, "0")
    with locked(tmp_path, "key", "fit"), pytest.raises(ConfigError), locked(tmp_path, "key", "fit"):
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    "argv",
    [
        ["fit", "--config", "smoke", "--warm_start", "null", "--overwrite", "true", "--trainer.default_root_dir"],
        ["deploy", "--config", "smoke", "--warm_start", "null", "--num_tasks", "0", "--state"],
    ],
    ids=["fit", "deploy"],
)
@pytest.mark.usefixtures("holder")
def test_a_second_command_gives_one_line_and_changes_nothing(argv, tmp_path):
    ran = cod(*argv, str(tmp_path), cwd=ROOT, timeout=120)
    assert ran.returncode == 2
    assert ran.stderr.strip().splitlines()[-1].startswith("error: ")
    assert f"in which no other {argv[0]} runs (process " in ran.stderr
    assert "Traceback" not in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


def test_a_lock_that_is_a_link_or_a_folder_is_refused_and_what_it_leads_to_is_left_alone(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("precious")
    (tmp_path / LOCK).symlink_to(precious)
    for _ in range(2):
        with (
            pytest.raises(ConfigError, match=r"--state is .*\.lock is a file, or nothing at all"),
            locked(tmp_path, "--state", "x"),
        ):
            pass
        if (tmp_path / LOCK).is_symlink():
            (tmp_path / LOCK).unlink()
            (tmp_path / LOCK).mkdir()
    assert precious.read_text() == "precious"
