"""A file that is there as a whole or not at all; a link in its place is replaced and never followed, since a run may be foreign."""

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Put it there in one replace, with a folder for it. A device or pipe, such as /dev/stdout, is written to.

    Raises:
        OSError: Where that cannot be done; the file is then as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    draft = path.with_name(f".{secrets.token_hex(8)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(data)
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def sync(path: Path) -> None:
    """Have a file's content, or a folder's names, on disk before anything else is done."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def without_link(path: Path) -> Path:
    """The path, for a file that is written bit by bit: a link that lay there is gone, and what it led to as it was."""
    if path.is_symlink():
        path.unlink()
    return path
