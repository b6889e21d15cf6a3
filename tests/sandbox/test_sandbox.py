"""What a job may do in its sandbox, and that nothing of it reaches the trainer or another job."""

import os
import pickle
import platform
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path

import pytest

from cod_lightning.errors import GradingFailed
from cod_lightning.sandbox import system_calls, walls
from cod_lightning.sandbox.sandbox import Sandbox
from tests.cases import each
from tests.sandbox.refusing import LANDLOCK, UNSHARE

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"), reason="filters of Linux"
)
ROOT = Path(__file__).parents[2]
SYSTEMS = {"as it is": [], "no namespaces": [UNSHARE], "no Landlock": [LANDLOCK], "neither": [UNSHARE, LANDLOCK]}
"""Calls that a system refuses."""


class Programs(Sandbox):
    """A sandbox for texts."""

    def run(self, program, given=""):
        return super().run(program.encode(), given.encode())


@pytest.fixture(scope="module")
def sandbox():
    return Programs(time_s=5.0, memory_mb=256)


@pytest.fixture(scope="module")
def limited():
    """The sandbox of a limit of seconds and of 128 MB."""
    return cache(lambda time_s: Programs(time_s=time_s, memory_mb=128))


def raised(ended):
    return ended.errors.rstrip().rpartition("\n")[2]


def elsewhere(refused, program, **settings):
    """The output and the last error of a program in a sandbox of a process for which the system refuses these calls."""
    if refused and platform.machine() != "x86_64":
        pytest.skip("the numbers are of x86-64")
    asked = (
        "import logging; logging.basicConfig(format='%(message)s')\n"
        "from cod_lightning.sandbox.sandbox import Sandbox\n"
        f"ended = Sandbox(**{settings!r}).run({program!r}.encode())\n"
        "print(ended.output.strip(), '|', ended.errors.strip().rpartition(chr(10))[2])"
    )
    command = [sys.executable, str(ROOT / "tests/sandbox/refusing.py"), str(refused), asked]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_a_program_reads_its_input_and_prints_as_the_first_one_did_and_its_threads_are_waited_for(sandbox):
    assert sandbox.run("import os; print(int(input()) + 1, os.fstat(0).st_size, open(0).seek(0))", "4\nrest")[:2] == (
        "5 6 0\n",
        "",
    )
    sandbox.run("import math, sys, builtins\nmath.sqrt = None\nbuiltins.print = None\nsys.path.clear()")
    assert sandbox.run("import math, colorsys; print(math.sqrt(4))").output == "2.0\n"
    late = "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.1), print('late'))).start()"
    assert sandbox.run(late).output == "late\n"


@each(
    ("program", "code", "errors"),
    [
        ("raise SystemExit", 0, ""),
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no')", 1, "no"),
        ("import os; os._exit(7)", 7, ""),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("import sys; sys.stderr.write('x' * 10**6); 1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV, ""),
    ],
)
def test_how_a_program_ended_is_known(sandbox, program, code, errors):
    ended = sandbox.run(program)
    assert (ended.code, raised(ended)[-60:]) == (code, errors)


@pytest.mark.slow
@each(
    ("program", "time_s", "complaint"),
    [
        ("while True: pass", 0.3, "took longer than 0.3 s"),
        ("import os, time; os.close(1); os.close(2); time.sleep(60)", 0.3, "took longer than 0.3 s"),
        (
            "import signal\nfor n in (14, 15, 24): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
            0.3,
            "took longer than 0.3 s",
        ),
        ("while True: print('9' * 1000)", 5.0, "printed more than 1,000,000 bytes"),
        ("x = [0] * 10**9", 5.0, "ended with exit code 1"),
        ("import mmap; mmap.mmap(-1, 2**30)", 5.0, "ended with exit code 1"),
        (
            "import threading\nwhile True: threading.Thread(target=threading.Event().wait).start()",
            0.5,
            "took longer than 0.5 s|code 1",
        ),
    ],
)
def test_a_job_that_takes_too_much_is_ended(limited, program, time_s, complaint):
    begun = time.perf_counter()
    found = limited(time_s).run(program).complaint
    assert any(one in found for one in complaint.split("|"))
    assert time.perf_counter() - begun < 8


HOSTILE = {
    "fork": "import os\nos.fork()",
    "forty children": "import subprocess\nfor n in range(40): subprocess.Popen(['sleep', '77'])",
    "exec": "import os\nos.execv('/bin/sh', ['sh'])",
    "a file": "open('/tmp/cod_lightning_left', 'w')",
    "a file to append": "import os\nos.open('/tmp', os.O_RDWR | os.O_TMPFILE)",
    "a folder": "import os\nos.mkdir('/tmp/cod_lightning_left')",
    "shared memory": "from multiprocessing.shared_memory import SharedMemory\nSharedMemory(create=True, size=10)",
    "memory as a file": "import os\nos.memfd_create('x')",
    "its input": "import os\nos.write(0, b'x' * 100)",
    "a connection": "import socket\nsocket.create_connection(('127.0.0.1', 9))",
    "a pair of sockets": "import socket\nsocket.socketpair()",
    "a signal to the template": "import os\nos.kill(os.getppid(), 9)",
    "a signal to the first": "import os\nos.kill(1, 9)",
    "a signal to all": "import os\nos.kill(-1, 9)",
    "a higher limit": "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (10**5, 10**5))",
    "a lock": "import fcntl\nfcntl.fcntl(1, fcntl.F_SETOWN, 1)",
    "a link": "import os\nos.symlink('/etc', '/tmp/cod_lightning_left')",
    "another root": "import os\nos.chroot('/tmp')",
    "another user": "import os\nos.setuid(1234)",
}


@each("program", HOSTILE.values())
def test_a_job_can_only_compute(sandbox, program):
    ended = sandbox.run(program)
    assert ended.code == 1
    assert any(word in raised(ended) for word in ("PermissionError", "not allowed", "File too large"))
    assert not Path("/tmp/cod_lightning_left").exists()


RAW = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    ctypes.set_errno(0)
    return libc.syscall(*arguments) == -1 and ctypes.get_errno() in (1, 38)
print([name for name, arguments in NUMBERS.items() if not call(*arguments)])
"""
NUMBERS = {
    "vfork": (58,), "clone": (56, 17, 0, 0, 0, 0), "clone3": (435, 0, 0), "ptrace": (101, 16, 1, 0, 0),
    "tgkill": (234, 1, 1, 9), "process_vm_readv": (310, 1, 0, 0, 0, 0, 0), "pidfd_open": (434, 1, 0),
    "openat2": (437, 0, 0, 0, 0), "creat": (85, b"/tmp/x", 384), "io_uring_setup": (425, 1, 0),
    "bpf": (321, 0, 0, 0), "unshare": (272, 0x10000000), "setns": (308, 0, 0), "mount": (165, 0, 0, 0, 0, 0),
    "keyctl": (250, 0, 0), "shmget": (29, 0, 4096, 0o1600), "mq_open": (240, b"x", 66, 384, 0),
    "userfaultfd": (323, 0), "prctl": (157, 4, 1, 0, 0, 0), "seccomp": (317, 1, 0, 0), "setitimer": (38, 0, 0, 0),
    "prlimit64": (302, 0, 7, b"\\0" * 16, 0),
}  # fmt: skip


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are of x86-64")
def test_calls_of_the_system_that_python_does_not_know_are_refused_too(sandbox):
    ended = sandbox.run(RAW.replace("NUMBERS", repr(NUMBERS)))
    assert (ended.output.strip(), ended.complaint) == ("[]", "")


@pytest.mark.slow
@each("refused", SYSTEMS.values())
def test_a_job_reads_files_of_the_user_where_the_system_has_neither_wall_alone_and_the_filter_holds_whatever_it_has(
    tmp_path, refused
):
    """The data, keys in the environment of others, what lies in /dev/shm."""
    (tmp_path / "data.jsonl").write_text("the answers")
    program = (
        "import os, socket, heapq, decimal, ctypes\nfound, refused = [], 0\n"
        f"for path in ({str(tmp_path / 'data.jsonl')!r}, '/etc/passwd', '/proc/self/environ', '/proc/1/status'):\n"
        "    try: found.append(open(path).read() and path)\n"
        "    except OSError: pass\n"
        "for call in (os.fork, socket.socket, lambda: open('/tmp/cod_lightning_left', 'w'), lambda: os.kill(os.getppid(), 9)):\n"
        "    try: call()\n"
        "    except PermissionError: refused += 1\n"
        "print(len(found), refused)"
    )
    printed, said = elsewhere(refused, program)
    open_to_all = UNSHARE in refused and LANDLOCK in refused
    assert printed.endswith(" 4 |")
    assert (printed != "0 4 |") == open_to_all
    assert ("read this user's files" in said) == open_to_all


def test_where_the_system_has_no_filter_it_is_said_once(monkeypatch, caplog):
    from cod_lightning.sandbox import sandbox as client

    monkeypatch.setattr(client, "_said", set())
    for _ in range(2):
        client._say_what_is_missing(frozenset({"Landlock"}))
    (one,) = caplog.messages
    assert "write files, start processes and open connections" in one
    assert "Train in a container." in one
    client._say_what_is_missing(frozenset({"Landlock", "filter"}))
    assert len(caplog.messages) == 1


def test_a_machine_that_the_filter_does_not_know_has_none():
    assert system_calls._program("riscv64") == []


def test_a_job_has_none_of_the_variables_of_the_trainer(monkeypatch):
    monkeypatch.setenv("JUDGE_API_KEY", "secret")
    assert (
        Programs().run("import os; print(sorted(set(os.environ) & {'JUDGE_API_KEY', 'HOME', 'USER'}))").output == "[]\n"
    )


def test_jobs_at_the_same_time_do_not_meet(sandbox):
    outputs = {}

    def run(number):
        outputs[number] = sandbox.run("import sys, time; time.sleep(.05); print(sys.stdin.read())", str(number)).output

    threads = [threading.Thread(target=run, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {number: f"{number}\n" for number in range(12)}


def test_a_template_that_was_killed_is_started_again_and_what_it_cannot_import_is_said():
    sandbox = Programs()
    assert sandbox.run("print(1)").output == "1\n"
    os.kill(sandbox._template.process.pid, signal.SIGKILL)
    assert sandbox.run("print(2)").output == "2\n"
    with pytest.raises(GradingFailed, match="No module named 'no_such_module'"):
        Sandbox("no_such_module:job").run(b"")


def test_a_template_outlives_the_thread_that_began_it_so_that_no_job_of_another_thread_is_cut_off():
    """Worlds grade in a thread of its own for each answer."""
    sandbox = Programs()
    first = threading.Thread(target=sandbox.run, args=("",))
    first.start()
    first.join()
    begun, ended = sandbox._template.process, []
    other = threading.Thread(target=lambda: ended.append(sandbox.run("import time; time.sleep(.3); print(1)")))
    other.start()
    other.join()
    assert ended == [("1\n", "", "", 0)]
    assert sandbox._template.process is begun
    assert begun.poll() is None


@pytest.mark.slow
def test_all_processes_end_with_the_trainer():
    asked = (
        "import os, threading\nfrom cod_lightning.sandbox.sandbox import Sandbox\nsandbox = Sandbox(time_s=60)\nsandbox.run(b'')\n"
        "threading.Thread(target=sandbox.run, args=(b'import time; time.sleep(60)',)).start()\n"
        "import time; time.sleep(.3); print(sandbox._template.process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", asked],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    late = time.monotonic() + 5
    while (found := children_of_session(int(done.stdout))) and time.monotonic() < late:
        time.sleep(0.05)
    assert found == []


def children_of_session(leader):
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(path.parent.name)
    return found


def test_a_copy_is_itself_and_a_pickled_one_begins_anew():
    sandbox = Sandbox(time_s=2.0)
    sandbox.run(b"")
    other = pickle.loads(pickle.dumps(sandbox))
    assert (other.time_s, other.run(b"print(1)").output) == (2.0, "1\n")


def test_the_standard_library_can_be_read_and_what_is_imported():
    assert all(os.path.exists(path) for path in walls.standard_library())
    assert any(path.endswith("cod_lightning") for path in walls.imported())
