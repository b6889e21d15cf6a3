"""Programs of others see neither this process nor each other, and no key of its environment."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cod_lightning.envs import apart
from cod_lightning.envs.process_pool import PendingCall
from cod_lightning.envs.programs.processes import LinePool

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
LOOKS_ROUND = """
import glob, json, os
task = json.loads(input())
found = []
for path in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try:
        found.append(open(path).read())
    except OSError:
        pass
print(json.dumps({"answer": "\\0".join(found), "own": dict(os.environ)}))
"""


@pytest.fixture(autouse=True)
def asked_anew():
    apart._starter.cache_clear()
    yield
    apart._starter.cache_clear()


def python(source):
    return [sys.executable, "-I", "-S", "-c", source]


def answer(of, **task):
    return of.ask(task, lambda one: "answer" in one, 20.0, PendingCall())


@pytest.fixture
def namespaces():
    if not apart._starter():
        pytest.skip("this system gives users no namespaces")


@linux
@pytest.mark.usefixtures("namespaces")
def test_a_program_finds_no_key_of_this_process_or_of_another_program(monkeypatch):
    monkeypatch.setenv("JUDGE_API_KEY", "sk-judge")
    beside = {**os.environ, "KEY_OF_ANOTHER": "sk-other"}
    other = subprocess.Popen(["sleep", "60", "sk-argument"], env=beside, stderr=subprocess.DEVNULL)
    try:
        seen = str(answer(LinePool(python(LOOKS_ROUND), 1, False), api_key="sk-own"))
        assert "PATH=" in seen
        assert [key for key in ("sk-judge", "sk-other", "sk-argument") if key in seen] == []
    finally:
        other.kill()
        other.wait()


def test_a_program_gets_the_variables_that_are_named_and_no_others(monkeypatch):
    monkeypatch.setenv("SEARCH_KEY", "sk-search")
    monkeypatch.setenv("HF_TOKEN", "hf-secret")
    own = answer(LinePool(python(LOOKS_ROUND), 1, False, ["SEARCH_KEY"]))["own"]
    assert own["SEARCH_KEY"] == "sk-search"
    assert own["PATH"] == os.environ["PATH"]
    assert "HF_TOKEN" not in own
    assert not [name for name in own if name.startswith("OPENAI_")]


@linux
@pytest.mark.usefixtures("namespaces")
def test_a_program_of_root_cannot_uncover_the_processes_of_the_machine():
    source = """
import ctypes, json, os
input()
taken = ctypes.CDLL(None).umount2(b"/proc", 2)
print(json.dumps({"answer": [taken, sum(name.isdecimal() for name in os.listdir("/proc"))]}))
"""
    assert answer(LinePool(python(source), 1, False))["answer"] == [-1, 2]


@linux
def test_others_cannot_look_into_a_process_that_starts_programs():
    source = "import ctypes; from cod_lightning.envs import apart; apart.command(['true']); print(ctypes.CDLL(None).prctl(3))"
    assert subprocess.run([sys.executable, "-c", source], capture_output=True, text=True).stdout == "0\n"
    assert ctypes.CDLL(None).prctl(3) in (0, 1)


@linux
@pytest.mark.parametrize("code", [0, 3, 127])
def test_a_program_apart_ends_with_its_own_exit_code(code):
    assert subprocess.run(apart.command(["sh", "-c", f"exit {code}"])).returncode == code


@linux
@pytest.mark.usefixtures("namespaces")
def test_a_program_apart_is_asked_to_end_and_may_say_goodbye():
    source = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit('bye')); print(1, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(apart.command(python(source)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=20)[1] == "bye\n"


@linux
@pytest.mark.usefixtures("namespaces")
def test_what_a_program_has_started_ends_with_it_wherever_it_went():
    source = """
import json, subprocess
input()
subprocess.Popen(["sleep", "61.25"], start_new_session=True, stdin=-3, stdout=-3, stderr=-3, env={})
print(json.dumps({"answer": 1}))
"""

    def sleeping():
        found = False
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                found = path.read_bytes() == b"sleep\x0061.25\0" or found
        return found

    answer(LinePool(python(source), 1, False))
    late = time.monotonic() + 10
    while sleeping() and time.monotonic() < late:
        time.sleep(0.01)
    assert not sleeping()


def test_where_the_system_gives_no_namespaces_programs_run_and_it_is_said_once(monkeypatch, caplog):
    refused = subprocess.CompletedProcess((), 99)
    monkeypatch.setattr(apart.subprocess, "run", lambda *_, **__: refused)
    assert [apart.command(["a", "b"]) for _ in range(3)] == [["a", "b"]] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "container" in caplog.text
