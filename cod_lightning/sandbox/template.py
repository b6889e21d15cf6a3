"""The process that a sandbox forks its jobs from: it has imported all that they need, cut itself off, and ran none of them itself.

It speaks to the trainer over a socket, and ends when that is closed: for each job it gets one byte and a socket, and forks a
watcher. That forks again; the second fork reads the job from the socket, closes all but its standard streams, and runs it, and the
watcher writes to the socket what came of it. What a job does ends with its process, and nothing that a job writes is read by its
watcher other than as bytes.
"""

import atexit
import contextlib
import gc
import importlib
import json
import math
import os
import selectors
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

from cod_lightning.sandbox import system_calls, walls

SandboxJob = Callable[[bytes], None]
"""Takes a request, prints its result."""
_MOST_ERRORS = 20_000
_AT_ONCE = 65_536
_MOST_DESCRIPTORS = 4096
"""Far more than this process ever has open."""
HEADER = struct.Struct("!II")
"""Before a job: lengths of the request and of the standard input. After it: of a JSON object with `ended` and `code`, and of the
output; errors follow."""


def program() -> SandboxJob:
    """A job that runs its request as `python program.py` would; its standard input is what the sandbox was given."""

    def run(request: bytes) -> None:
        sys.argv[:] = ["program.py"]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(request.decode(), "program.py", "exec"), main.__dict__)

    return run


def main(root: str, control: str, asked: str) -> None:
    """Prepare as asked (JSON), cut this process off, say so, and serve until the trainer closes the socket.

    Args:
        root: Entry of `sys.path` that this package was imported from.
        control: Descriptor of the socket.
        asked: `entry` and `arguments` of the function that makes the job, `path` for imports (null: the standard library), an
            `empty` folder, and `memory_bytes`, `time_s` and `most_output` (bytes) of a job.
    """
    trainer = socket.socket(fileno=int(control))
    options = json.loads(asked)
    sys.path[:] = [one for one in sys.path if one != root] if options["path"] is None else options["path"]
    try:
        module, _, name = options["entry"].partition(":")
        job = getattr(importlib.import_module(module), name)(*options["arguments"])
    except BaseException as error:
        said = {"error": "".join(traceback.format_exception(error))[-4000:]}
        trainer.sendall(json.dumps(said).encode())
        return
    readable = [*walls.standard_library(), *walls.imported()]
    options["memory_bytes"] += walls.address_bytes()  # while there still is a /proc
    namespaces = walls.leave_the_machine(readable, options["empty"])
    if namespaces and (first := os.fork()):
        trainer.close()
        os.waitpid(first, 0)
        return
    walls.end_with_the_parent()
    found = {"namespaces": namespaces, "Landlock": walls.only_read(readable), "filter": _filter_works()}
    trainer.sendall(json.dumps({"walls": [name for name, there in found.items() if there]}).encode())
    print(end="", file=sys.__stdout__, flush=True)  # what was printed meanwhile is no job's
    gc.collect()
    gc.freeze()  # what is there now is shared with the jobs, and not copied by their collections
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system takes away the watchers that have ended
    while sockets := socket.recv_fds(trainer, 1, 1)[1]:
        if not os.fork():
            trainer.close()
            _watch(job, socket.socket(fileno=sockets[0]), options)
            os._exit(0)
        os.close(sockets[0])


def _filter_works() -> bool:
    """Whether the system takes the filter of system calls; tried in a process of its own."""
    if not (pid := os.fork()):
        os._exit(not system_calls.filtered())
    return os.waitpid(pid, 0)[1] == 0


def _exit_code(job: SandboxJob, request: bytes) -> int:
    """Run the job as a program is run; the interpreter itself is not taken down, which would take longer than most jobs."""
    code: Any = 0
    try:
        job(request)
    except SystemExit as left:
        code = left.code
    except BaseException:
        traceback.print_exc()
        code = 1
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code & 255 if isinstance(code, int) else code is not None


def _watch(job: SandboxJob, answers: socket.socket, options: dict[str, Any]) -> None:
    """In a watcher: fork the job, read what it says until it has ended, end it where it is late or says too much, and answer."""
    walls.end_with_the_parent()
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    (out, print_to), (err, complain_to) = os.pipe(), os.pipe()
    if not (pid := os.fork()):
        os._exit(_exit_code(job, _within(answers, print_to, complain_to, options)))
    os.close(print_to)
    os.close(complain_to)
    late, ended, said = time.monotonic() + options["time_s"], "exit", {out: bytearray(), err: bytearray()}
    with selectors.DefaultSelector() as selector:
        for pipe in (out, err, woken):
            selector.register(pipe, selectors.EVENT_READ)
        gone, status = 0, 0
        while not gone:
            gone, status = os.waitpid(pid, os.WNOHANG)
            left = 0.0 if gone else max(0.0, late - time.monotonic())
            for key, _ in selector.select(min(left, 3600)):
                got = os.read(key.fd, _AT_ONCE)  # all that a pipe holds
                if not got:
                    selector.unregister(key.fd)
                elif key.fd in said:
                    said[key.fd] += got
            del said[err][:-_MOST_ERRORS]
            if len(said[out]) > options["most_output"]:
                ended = "output"
            elif late <= time.monotonic() and not gone:
                ended = "time"
            if ended != "exit":
                _end(os.kill, pid)
                _end(os.killpg, pid)
                late = math.inf
    _end(os.killpg, pid)  # what it has started, where there is no filter of system calls
    report = json.dumps({"ended": ended, "code": os.waitstatus_to_exitcode(status)}).encode()
    with contextlib.suppress(OSError), answers:  # the trainer's thread may be gone
        answers.settimeout(10.0)
        answers.sendall(HEADER.pack(len(report), len(said[out])) + report + said[out] + said[err])


def _end(kill: Callable[[int, int], None], pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        kill(pid, signal.SIGKILL)


def _within(answers: socket.socket, out: int, err: int, options: dict[str, Any]) -> bytes:
    """In a job's process: read the job, close all else, and take the last limits. The request."""
    os.setsid()
    walls.end_with_the_parent()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with answers.makefile("rb") as file:
        request, given = (file.read(length) for length in HEADER.unpack(file.read(HEADER.size)))
    source = _file_of(given)
    for number, stream in enumerate((source, out, err)):
        os.dup2(stream, number)
    os.closerange(3, _MOST_DESCRIPTORS)
    answers.detach()
    walls.limit(options["memory_bytes"], int(options["time_s"]) + 1)
    walls.without_capabilities()
    if not system_calls.filtered():
        walls.start_none()
    return request


def _file_of(content: bytes) -> int:
    """A descriptor of a file in memory with this content."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("input")
    else:
        from tempfile import TemporaryFile

        file = os.dup(TemporaryFile().fileno())  # noqa: SIM115
    with open(file, "wb", closefd=False) as stream:
        stream.write(content)
    os.lseek(file, 0, os.SEEK_SET)
    return file
