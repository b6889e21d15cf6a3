"""Keeps programs of others apart: they see neither this process, nor its environment, nor each other.

Linux gives each program a namespace of processes with a /proc of its own; files, network and user stay as they are. This module is
the first process of such a namespace, too (`python apart.py COMMAND`), so it imports the standard library alone.
"""

import ctypes
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache

_GIVEN = ("HOME", "LANG", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "PYTHONPATH", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE")
_GIVEN += ("TERM", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV")
_GIVEN_BEGIN = ("LC_", "OMP_", "OPENBLAS_", "MKL_")
_NEWNS, _NEWIPC, _NEWUSER, _NEWPID = 0x20000, 0x8000000, 0x10000000, 0x20000000
_REC, _PRIVATE, _NOSUID, _NODEV, _NOEXEC = 16384, 1 << 18, 2, 4, 8
_DEATH_SIGNAL, _DUMPABLE, _DROP_CAPABILITY, _MOST_CAPABILITIES = 1, 4, 24, 64
_NONE = 99
"""Exit code of a probe where the system gives no namespaces."""
_PROBE = "--probe"


def variables(further: Sequence[str] = ()) -> dict[str, str]:
    """The environment of a program: paths, language and threads, and further variables by name; no keys of this process."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _GIVEN or name in further or name.startswith(_GIVEN_BEGIN)
    }


def command(program: Sequence[str]) -> list[str]:
    """What starts the program apart; the program itself, with a warning, where the system gives no namespaces.

    From here on other processes of this user cannot look into this one either (PR_SET_DUMPABLE), nor can a debugger.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)
    return [*_starter(), *program]


@cache
def _starter() -> tuple[str, ...]:
    starter = (sys.executable, "-I", "-S", __file__)
    if sys.platform.startswith("linux") and subprocess.run([*starter, _PROBE], check=False).returncode == 0:
        return starter
    logging.getLogger(__name__).warning(
        "Agent programs and MCP servers can read each other's memory, and the keys in it: this system gives them no namespaces. "
        "Train where users may have some, or in a container with one program."
    )
    return ()


def main(program: Sequence[str]) -> int:
    """Run a program in namespaces of its own, and end with its exit code (128 and the signal, where one ended it)."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_NEWUSER | _NEWNS | _NEWPID | _NEWIPC):
        return _NONE
    for name, content in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(content)
    if first := os.fork():
        return _ended(first)
    libc.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if libc.mount(b"none", b"/", None, ctypes.c_ulong(_REC | _PRIVATE), None):
        return _NONE
    if libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(_NOSUID | _NODEV | _NOEXEC), None):
        return _NONE  # such as a container's, parts of whose /proc are hidden
    if program == [_PROBE]:
        return 0
    if second := os.fork():
        return _ended(second)
    for capability in range(_MOST_CAPABILITIES):  # root could take the new /proc away, with the machine's beneath it
        libc.prctl(_DROP_CAPABILITY, capability, 0, 0, 0)
    try:
        os.execvp(program[0], [*program])
    except OSError as error:
        print(f"{program[0]} could not be started: {error}", file=sys.stderr)
        return 127


def _ended(child: int) -> int:
    """Wait for the child, passing on what asks it to end; its exit code."""

    def pass_on(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):  # they are the program's: it alone ends them
        os.dup2(nothing, stream)
    while True:
        pid, status = os.wait()  # of the program's orphans, too
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
