"""What cuts a process off from the machine: namespaces with an empty, read-only root, Landlock's rules for files, limits.

Each is taken where the system gives it to this user; `system_calls` has the third. The standard library alone.
"""

import ctypes
import os
import resource
import struct
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import suppress

_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")
_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
)  # fmt: skip
_RDONLY, _NOSUID, _NODEV, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
_KEPT = 2 | 4 | 8 | 1024 | 2048
"""Flags of a mount that a namespace of a user may not take away: nosuid, nodev, noexec, noatime, nodiratime."""
_DETACH = 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, _VERSION = 444, 445, 446, 1
_FILE_ACCESS = (0, 13, 14, 15, 15, 16)
"""Kinds of access to files that Landlock knows, by its version."""
_EXECUTE, _READ_FILE, _READ_FOLDER = 1, 4, 8
_NO_NEW_PRIVS, _DEATH_SIGNAL = 38, 1
_MOST_FILES = 64

_libc = ctypes.CDLL(None, use_errno=True)


def standard_library() -> list[str]:
    """Paths that Python's own modules are read from."""
    found = dict.fromkeys((sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), *_LIBRARIES))
    return [path for path in found if os.path.exists(path)]


def imported() -> list[str]:
    """Folders and files of all packages that this process has imported, but those of the standard library."""
    found: dict[str, None] = {}
    for name, module in list(sys.modules.items()):
        if "." not in name and name not in sys.stdlib_module_names and name != "__main__":
            places = list(getattr(module, "__path__", ())) or [getattr(module, "__file__", None)]
            found |= dict.fromkeys(place for place in places if isinstance(place, str) and os.path.exists(place))
    return [*found]


def leave_the_machine(readable: Sequence[str], empty: str) -> bool:
    """Move into namespaces of its own, in which only these paths exist, read-only; False where the system allows none.

    The next process that is started is the first one of its namespace of processes, and all end with it.

    Args:
        readable: Folders and files.
        empty: A folder to build the root over, which stays empty.
    """
    user, group = os.geteuid(), os.getegid()
    everything = _NEWUSER | _NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS | _NEWCGROUP
    if not sys.platform.startswith("linux") or _libc.unshare(everything):
        return False
    try:
        for name, content in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(content)
        _mount("none", "/", None, _REC | _PRIVATE)
        _mount("tmpfs", empty, "tmpfs", _NOSUID | _NODEV)
        for path in readable:
            _show(path, empty + path)
        os.chdir(empty)
        _checked(_libc.syscall(_PIVOT_ROOT, b".", b"."))
        _checked(_libc.umount2(b".", _DETACH))
        os.chdir("/")
        _mount("none", "/", None, _REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)
    except OSError:  # such as AppArmor's, where a namespace of a user may mount nothing
        return False
    return True


_PIVOT_ROOT = 155 if os.uname().machine == "x86_64" else 41


def _show(path: str, there: str) -> None:
    """Mount a path, read-only."""
    if os.path.exists(there):  # within one that was shown before
        return
    if os.path.isdir(path):
        os.makedirs(there)
    else:
        os.makedirs(os.path.dirname(there), exist_ok=True)
        os.close(os.open(there, os.O_CREAT))
    _mount(path, there, None, _BIND | _REC)
    _mount("none", there, None, _REMOUNT | _BIND | _RDONLY | (os.statvfs(there).f_flag & _KEPT))


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    names = (source.encode(), target.encode(), kind.encode() if kind else None)
    _checked(_libc.mount(*names, ctypes.c_ulong(flags), None))


def _checked(code: int) -> None:
    if code:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def only_read(readable: Sequence[str]) -> bool:
    """Forbid this process and its children all files but these, which may be read (Landlock); False where the system has none.

    Source: https://docs.kernel.org/userspace-api/landlock.html
    """
    if not sys.platform.startswith("linux"):
        return False
    version = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION)
    if version < 1:
        return False
    handled = struct.pack("Q", (1 << _FILE_ACCESS[min(version, len(_FILE_ACCESS) - 1)]) - 1)
    rules = _libc.syscall(_CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0)
    if rules < 0:
        return False
    try:
        for path in readable:
            allowed = _EXECUTE | _READ_FILE | (_READ_FOLDER if os.path.isdir(path) else 0)
            with suppress(FileNotFoundError):
                file = os.open(path, os.O_PATH | os.O_CLOEXEC)
                try:
                    _checked(_libc.syscall(_ADD_RULE, rules, 1, struct.pack("=Qi", allowed, file), 0))
                finally:
                    os.close(file)
        _checked(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
        _checked(_libc.syscall(_RESTRICT_SELF, rules, 0))
    except OSError:
        return False
    finally:
        os.close(rules)
    return True


def end_with_the_parent() -> None:
    """Let the system kill this process when the one that started it ends, or the very thread there that did."""
    if sys.platform.startswith("linux"):
        _libc.prctl(_DEATH_SIGNAL, 9, 0, 0, 0)


def without_capabilities() -> None:
    """Give up what root may do beyond a user."""
    if sys.platform.startswith("linux"):
        _libc.capset(struct.pack("Ii", 0x20080522, 0), bytes(24))


def limit(memory_bytes: int, cpu_s: int) -> None:
    """Limit this process: bytes of addresses, seconds of computing, open files; what it writes into files is empty."""
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_NOFILE: _MOST_FILES,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for which, most in limits.items():
        hard = resource.getrlimit(which)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with suppress(ValueError, OSError):  # of macOS, which takes no limit of addresses
            resource.setrlimit(which, (most, most))


def start_none() -> None:
    """Forbid this process to start others, and threads, unless it is root's."""
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def address_bytes() -> int:
    """Bytes of addresses that this process has; 0 where the system does not say."""
    with suppress(OSError), open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
    return 0
