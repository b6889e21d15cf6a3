"""A filter of system calls (seccomp) that lets a process compute, read files and answer, and nothing else.

It cannot write, make or remove a file, open a socket, start a process, send a signal, look into another process, or get rid of the
filter. Threads are let through. The standard library alone; Linux on x86-64 and on 64-bit ARM.
"""

import ctypes
import errno
import platform
import struct

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column of the tables below, and the kernel's number (AUDIT_ARCH)."""

_HARMLESS = """
read=0,63 write=1,64 close=3,57 fstat=5,80 newfstatat=262,79 stat=4, lstat=6, statx=332,291 statfs=137,43 fstatfs=138,44 lseek=8,62
pread64=17,67 readv=19,65 writev=20,66 access=21, faccessat=269,48 faccessat2=439,439 readlink=89, readlinkat=267,78 getcwd=79,17
getdents64=217,61 fadvise64=221,223 mmap=9,222 mprotect=10,226 munmap=11,215 mremap=25,216 brk=12,214 madvise=28,233 mincore=27,232
membarrier=324,283 rt_sigaction=13,134 rt_sigprocmask=14,135 rt_sigreturn=15,139 sigaltstack=131,132 restart_syscall=219,128
select=23, pselect6=270,72 poll=7, ppoll=271,73 epoll_create1=291,20 epoll_ctl=233,21 epoll_wait=232, epoll_pwait=281,22
eventfd2=290,19 pipe=22, pipe2=293,59 dup=32,23 dup2=33, dup3=292,24 nanosleep=35,101 clock_nanosleep=230,115 futex=202,98
getpid=39,172 gettid=186,178 getppid=110,173 getuid=102,174 geteuid=107,175 getgid=104,176 getegid=108,177 exit=60,93
exit_group=231,94 uname=63,160 gettimeofday=96,169 time=201, times=100,153 getrlimit=97,163 getrusage=98,165 sysinfo=99,179
sched_getaffinity=204,123 sched_yield=24,124 getcpu=309,168 set_tid_address=218,96 set_robust_list=273,99 get_robust_list=274,100
rseq=334,293 clock_gettime=228,113 clock_getres=229,114 getrandom=318,278 arch_prctl=158,
"""
"""Name=number on x86-64,number on ARM: calls that may have any arguments."""
_OPEN, _OPENAT, _CLONE, _CLONE3 = (2, None), (257, 56), (56, 220), (435, 435)
_FCNTL, _PRLIMIT = (72, 25), (302, 261)
_WRITES = 0o3 | 0o100 | 0o1000 | 0o2000 | 0o20000000
"""O_ACCMODE, O_CREAT, O_TRUNC, O_APPEND and the bit of O_TMPFILE."""
_THREAD = 0x10000
"""CLONE_THREAD."""
_FCNTLS = (0, 1, 2, 3, 4, 1030)
"""Copies of a descriptor and its flags: no locks, no signals to other processes."""

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Where a call's number, its architecture and its arguments stand (struct seccomp_data)."""
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2

Instruction = tuple[int, int, int, int]


def filtered() -> bool:
    """Put the filter over this process for good; False where the system has none for it."""
    program = _program(platform.machine())
    if not program:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    content = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    pointer = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(content))
    return (
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        and libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.c_char_p(pointer), 0, 0) == 0
    )


def _program(machine: str) -> list[Instruction]:
    """The filter for the kernel's interpreter of BPF; empty for another machine."""
    if machine not in _ARCHITECTURES:
        return []
    column, architecture = _ARCHITECTURES[machine]
    allow, refuse = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE | errno.EPERM)
    program: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]

    def rule(call: tuple[int | None, int | None], *then: Instruction) -> None:
        """What is done at a call; its number has to be loaded, and the last of the instructions returns."""
        if (number := call[column]) is not None:
            program.extend([(_EQUAL, 0, len(then), number), *then])

    for one in _HARMLESS.split():
        numbers = one.partition("=")[2].split(",")
        rule((int(numbers[0]), int(numbers[1]) if numbers[1] else None), allow)
    for call, position in ((_OPEN, 1), (_OPENAT, 2)):
        rule(call, (_LOAD, 0, 0, _ARGUMENTS + 8 * position), (_ANY_BIT, 0, 1, _WRITES), refuse, allow)
    rule(_CLONE, (_LOAD, 0, 0, _ARGUMENTS), (_ANY_BIT, 0, 1, _THREAD), allow, refuse)
    rule(
        _CLONE3, (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)
    )  # its flags are not to be seen; the C library falls back on clone
    copies = [(_EQUAL, len(_FCNTLS) - n, 0, command) for n, command in enumerate(_FCNTLS)]
    rule(_FCNTL, (_LOAD, 0, 0, _ARGUMENTS + 8), *copies, refuse, allow)
    no_new_limit = [(_LOAD, 0, 0, _ARGUMENTS + 16), (_EQUAL, 0, 2, 0), (_LOAD, 0, 0, _ARGUMENTS + 20)]
    rule(_PRLIMIT, *no_new_limit, (_EQUAL, 1, 0, 0), refuse, allow)
    return [*program, refuse]
