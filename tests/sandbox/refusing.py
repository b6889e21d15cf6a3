"""A system that refuses some system calls, as containers do: run with their numbers and a program, it prints the program's result.

python tests/sandbox/refusing.py '[272]' SOURCE: SOURCE is Python; the numbers are of x86-64.
"""

import ctypes
import json
import struct
import sys

UNSHARE, LANDLOCK, SECCOMP = 272, 444, 317
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 38, 22


def refuse(numbers: list[int]) -> None:
    """Let these calls fail with EPERM from now on, here and in what is started."""
    program = [(0x20, 0, 0, 0)]
    for number in numbers:
        program += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050001)]
    program.append((0x06, 0, 0, 0x7FFF0000))
    content = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in program))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    pointer = struct.pack("HxxxxxxQ", len(program), ctypes.addressof(content))
    assert libc.prctl(PR_SET_SECCOMP, 2, ctypes.c_char_p(pointer), 0, 0) == 0


if __name__ == "__main__":
    refuse(json.loads(sys.argv[1]))
    exec(sys.argv[2])
