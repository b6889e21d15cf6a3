"""The process that a sandbox forks its jobs from: it has imported all that they need, cut itself off, and ran none of them itself.

It speaks to the trainer over a socket, and ends when that is closed: for each job it gets one byte and a socket, and forks. The
fork reads the job from that socket, closes all but its standard streams, and runs it. The template watches it, and writes to the
socket what came of it. What a job does ends with its process, and nothing that a job writes is read by the template other than as
bytes.
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


class Running:
    """A job's process."""

    def __init__(self, pid: int, answers: socket.socket, late: float, pipes: tuple[int, int]) -> None:
        self.pid, self.answers, self.late = pid, answers, late
        self.outputs = {pipe: bytearray() for pipe in pipes}
        """What it has printed and complained."""
        self.ended = "exit"
        """exit, time or output."""


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
    request = JobServer(trainer, options).serve()
    trainer.detach()
    if request is not None:
        os._exit(_exit_code(job, request))


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


class JobServer:
    """Forks jobs and watches them."""

    def __init__(self, trainer: socket.socket, options: dict[str, Any]) -> None:
        self.trainer, self.options = trainer, options
        self.running: dict[int, Running] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(trainer, selectors.EVENT_READ)

    def serve(self) -> bytes | None:
        """None when the trainer has closed its socket; in a job's process, its request."""
        woken, wakes = os.pipe()
        for end in (woken, wakes):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        self.selector.register(woken, selectors.EVENT_READ)
        while True:
            first = min((one.late for one in self.running.values()), default=math.inf)
            for key, _ in self.selector.select(min(max(0.0, first - time.monotonic()), 3600)):
                if key.fd == woken:
                    os.read(woken, _AT_ONCE)
                elif key.fileobj is not self.trainer:
                    self._read(key.fd, key.data)
                else:
                    begins, sockets, _, _ = socket.recv_fds(self.trainer, 1, 1)
                    if not begins:
                        return None
                    if (request := self._start(socket.socket(fileno=sockets[0]))) is not None:
                        return request
            self._reap()

    def _start(self, answers: socket.socket) -> bytes | None:
        """Fork. None in the template, the request in the fork."""
        (out, print_to), (err, complain_to) = os.pipe(), os.pipe()
        pid = os.fork()
        if not pid:
            return _within(answers, print_to, complain_to, self.options)
        os.close(print_to)
        os.close(complain_to)
        late = time.monotonic() + self.options["time_s"]
        self.running[pid] = one = Running(pid, answers, late, (out, err))
        for pipe in one.outputs:
            os.set_blocking(pipe, False)
            self.selector.register(pipe, selectors.EVENT_READ, one)
        return None

    def _read(self, pipe: int, one: Running) -> bool:
        """Take what it has printed, up to the bound; False where there is nothing more for now."""
        try:
            got = os.read(pipe, _AT_ONCE)
        except BlockingIOError:
            return False
        if not got:
            self.selector.unregister(pipe)
            return False
        kept, (out, _) = one.outputs[pipe], one.outputs
        kept += got
        if pipe != out:
            del kept[:-_MOST_ERRORS]
        elif len(kept) > self.options["most_output"]:
            self._end(one, "output")
            return False
        return True

    def _end(self, one: Running, why: str) -> None:
        one.ended = why
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(one.pid, signal.SIGKILL)  # what it has started, where there is no filter of system calls
        one.late = math.inf

    def _reap(self) -> None:
        """End what is late, and answer for what has ended."""
        for one in list(self.running.values()):
            if one.late <= time.monotonic():
                self._end(one, "time")
        while self.running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if (one := self.running.pop(pid, None)) is not None:
                self._answer(one, os.waitstatus_to_exitcode(status))

    def _answer(self, one: Running, code: int) -> None:
        """Tell the trainer, whose thread may be gone."""
        registered = self.selector.get_map()
        for pipe in one.outputs:
            while pipe in registered and self._read(pipe, one):
                pass
            if pipe in registered:
                self.selector.unregister(pipe)
            os.close(pipe)
        if code < 0 and one.ended == "exit":
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(one.pid, signal.SIGKILL)
        out, err = one.outputs.values()
        said = json.dumps({"ended": one.ended, "code": code}).encode()
        with contextlib.suppress(OSError), one.answers:
            one.answers.settimeout(10.0)
            one.answers.sendall(HEADER.pack(len(said), len(out)) + said + out + err)


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
