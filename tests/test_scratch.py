"""Folders of processes that were killed are removed by the next one, and no other folder is."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cod_lightning import files
from cod_lightning.files import scratch_prefix
from tests.cases import each

MAKE = (
    "import sys, tempfile, time; from cod_lightning.files import scratch_prefix\n"
    "print(tempfile.mkdtemp(prefix=scratch_prefix('weights', sys.argv[1]), dir=sys.argv[1]), flush=True); time.sleep(60)"
)


@pytest.fixture
def other(tmp_path):
    """Another process with a folder: the process, the folder."""
    process = subprocess.Popen([sys.executable, "-c", MAKE, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    (folder / "model.safetensors").write_bytes(b"x" * 1000)
    yield process, folder
    process.kill()
    process.wait()
    process.stdout.close()


def swept(folder):
    files.sweep.__wrapped__(folder)
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(tmp_path, other):
    process, folder = other
    assert swept(tmp_path) == [folder.name]
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert swept(tmp_path) == []


@each(
    "name",
    [
        "cod_lightning-weights-dead",
        "cod_lightning_config_x",
        "other-weights-{here}-9-9-x",
        "cod_lightning-a-00000000-9-9-x",
    ],
)
def test_what_another_host_or_another_program_made_stays(tmp_path, name):
    name = name.format(here=files._here())
    (tmp_path / name).mkdir()
    assert swept(tmp_path) == [name]


def test_neither_another_user_s_folder_nor_what_a_link_leads_to_is_touched(tmp_path, monkeypatch):
    name = f"cod_lightning-weights-{files._here()}-99999999-9-x"
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / name).symlink_to(target)
    assert swept(tmp_path) == [name, "target"]
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    assert swept(tmp_path) == [name, "target"]
    monkeypatch.setattr(os, "getuid", lambda: uid)
    assert swept(tmp_path) == ["target"]


@pytest.mark.slow
def test_many_that_start_at_once_never_lose_their_folder(tmp_path):
    """Each start sweeps while others are between making their folder and using it."""
    code = (
        "import sys, tempfile; from pathlib import Path; from cod_lightning import files\n"
        "for _ in range(60):\n"
        "    files.sweep.cache_clear()\n"
        "    folder = Path(tempfile.mkdtemp(prefix=files.scratch_prefix('weights', sys.argv[1]), dir=sys.argv[1]))\n"
        "    (folder / 'a').write_text('b'); (folder / 'a').unlink(); folder.rmdir()"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stderr=subprocess.PIPE) for _ in range(4)]
    assert [process.communicate()[1] for process in started] == [b""] * 4
    assert [process.returncode for process in started] == [0] * 4


def test_the_first_to_ask_sweeps_the_temporary_folder(tmp_path, monkeypatch):
    left = tmp_path / f"cod_lightning-config-{files._here()}-99999999-9-x"
    left.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    files.sweep.cache_clear()
    scratch_prefix("config")
    assert not left.exists()
    shutil.rmtree(tmp_path)
