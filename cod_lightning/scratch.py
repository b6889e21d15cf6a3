"""Folders that go with the process that made them: what a killed one left behind, the next one removes.

A name identifies its maker: host and process namespace, process, and when that process began. Nothing else of it is asked.
"""

import os
import re
import shutil
import socket
import tempfile
import zlib
from functools import cache
from pathlib import Path

_NAME = re.compile(r"cod_lightning-[a-z_]+-([0-9a-f]{8})-(\d+)-(\d+)-\w+")


def scratch_prefix(what: str, parent: str | None = None) -> str:
    """What the name of this process's folder in `parent` (null: where `tempfile` makes its own) begins with; sweeps there first.

    Args:
        what: What it is for, in small letters.
    """
    sweep(Path(parent or tempfile.gettempdir()))
    return f"cod_lightning-{what}-{_here()}-{os.getpid()}-{_began(os.getpid())}-"


@cache
def sweep(parent: Path) -> None:
    """Remove folders of processes that this user had on this host, and that have ended."""
    for folder in parent.glob("cod_lightning-*"):
        found = _NAME.fullmatch(folder.name)
        if found is None or found[1] != _here() or folder.is_symlink():
            continue
        try:
            if folder.stat().st_uid == os.getuid() and _began(int(found[2])) != int(found[3]):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # gone meanwhile
            continue


@cache
def _here() -> str:
    """This host and its namespace of processes: elsewhere the same numbers are other processes."""
    namespace = Path("/proc/self/ns/pid")
    there = os.readlink(namespace) if namespace.exists() else ""
    return f"{zlib.crc32(f'{socket.gethostname()} {there}'.encode()):08x}"


def _began(process: int) -> int:
    """When the process began, as its system counts, where that says so (else 0 for one that runs); -1 where there is none."""
    if Path("/proc/self/stat").exists():
        try:
            return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
        except OSError:
            return -1
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return -1
    except PermissionError:
        pass
    return 0
