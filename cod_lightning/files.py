"""Files that are there as a whole or not at all, folders that one process holds, and folders that go with their process.

A link in a file's place is replaced and never followed, since a run may be foreign. A lock is freed by the system when its
holder ends, however that ends. What a killed process left behind, the next one removes: a folder's name identifies its maker by
host, process namespace and process; nothing else of it is asked.
"""

import os
import re
import secrets
import shutil
import socket
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

from cod_lightning.errors import ConfigError


def write_whole(path: Path, content: str | bytes) -> None:
    """Put it there in one replace, with a folder for it. A device or pipe, such as /dev/stdout, is written to, through links of the
    system's own alone.

    Raises:
        OSError: Where that cannot be done; the file is then as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode("utf-8", "replace") if isinstance(content, str) else content
    of_system = path.parent.resolve().parts[1:2] in (("dev",), ("proc",))
    if path.exists() and not path.is_file() and (of_system or not path.is_symlink()):
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


def readable(path: Path) -> Path:
    """The path. Raises `OSError` where a folder, a pipe or a device is there, some of which would be read for ever."""
    if path.exists() and not path.is_file():
        raise OSError("it is no file")
    return path


def without_link(path: Path) -> Path:
    """The path, for a file that is written bit by bit: a link that lay there is gone, and what it led to as it was."""
    if path.is_symlink():
        path.unlink()
    return path


LOCK = ".lock"
"""File in the folder; it stays, and names its last holder."""
RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID")
"""Environment variables by which launchers number the processes of one run."""


@contextmanager
def locked(folder: Path, key: str, what: str) -> Iterator[None]:
    """Hold the folder, the value of `key`; `ConfigError` where another process does. Of several ranks only the first holds it.

    Args:
        what: What runs there alone, as in `fit`.
    """
    if later_rank():
        yield
        return
    check_folder(folder, key)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / LOCK
    lock = FileLock(file)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        holder = ""
        with suppress(OSError):
            holder = file.read_text(encoding="utf-8", errors="replace").strip()
        expected = f"a folder in which no other {what} runs ({holder or 'another process'} holds it)"
        raise ConfigError(key, folder, expected, "Wait until it has ended, or name another folder.") from error
    except OSError as error:
        expected = f"a folder in which {LOCK} is a file, or nothing at all ({error.strerror})"
        raise ConfigError(key, folder, expected, "Remove it, or name another folder.") from error
    try:
        file.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
        yield
    finally:
        lock.release()


def check_folder(folder: Path, key: str) -> None:
    """Raise `ConfigError` unless the folder, the value of `key`, can be written, or made where it is missing, and has a name that
    is text, as what libraries write has to be."""
    if not (name := str(folder)).isascii() and name.encode(errors="replace").decode() != name:
        raise ConfigError(key, folder, "a folder with a name in UTF-8", "Name another one.")
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not there.is_dir():
        expected = "a folder" if there == folder else f"a folder, and {there} is a file"
        raise ConfigError(key, folder, expected, "Name another one.")
    try:
        tempfile.TemporaryDirectory(dir=there).cleanup()
    except OSError as error:
        expected = f"a folder that can be written ({error.strerror} in {there})"
        raise ConfigError(key, folder, expected, "Name another one.") from error


def no_run(command: str, folder: Path, expected: str) -> ConfigError:
    """The refusal of a folder that is none of a run."""
    remedy = "A run of `fit` is in runs/NAME, or where --trainer.default_root_dir put it."
    return ConfigError(f"{command} RUN_DIR", folder, expected, remedy)


METADATA, EXTRA = ".metadata", "meta.pt"
"""Files of a sharded checkpoint: where each tensor lies (torch), whatever is no tensor (Lightning)."""


def checkpoint_file(path: str | Path) -> Path:
    """The file of a checkpoint that torch reads. Raises `ConfigError` where there is none."""
    remedy = "Look under checkpoints/ in the run's folder: runs/NAME, or where --trainer.default_root_dir put it."
    if not path or not Path(path).exists():
        raise ConfigError("ckpt_path", path or "empty", "an existing checkpoint", remedy)
    near = [Path(path, *inside) for inside in (("last.ckpt",), ("checkpoints", "last.ckpt"))]
    if found := next((one for one in near if one.exists()), None):
        remedy = f"Did you mean {found}?"
    folder = Path(path).is_dir()
    if folder and not (Path(path) / METADATA).is_file():
        raise ConfigError("ckpt_path", path, f"a checkpoint, not a folder without {METADATA}", remedy)
    file = Path(path) / EXTRA if folder else Path(path)
    if file.exists() and not file.is_file():  # a pipe would be waited for
        raise ConfigError("ckpt_path", path, "a checkpoint, and it is no file", remedy)
    return file


def later_rank() -> bool:
    """Whether a launcher started this process as one of several, and not as the first."""
    return any(os.environ.get(name, "0") not in ("", "0") for name in RANKS)


_NAME = re.compile(r"cod_lightning-[a-z_]+-([0-9a-f]{8})-(\d+)-[\w-]+")


def scratch_prefix(what: str, parent: str | None = None) -> str:
    """What the name of this process's folder in `parent` (null: where `tempfile` makes its own) begins with; sweeps there first.

    Args:
        what: What it is for, in small letters.
    """
    sweep(Path(parent or tempfile.gettempdir()))
    return f"cod_lightning-{what}-{_here()}-{os.getpid()}-"


@cache
def sweep(parent: Path) -> None:
    """Remove folders of processes that this user had on this host, and that have ended."""
    for folder in parent.glob("cod_lightning-*"):
        found = _NAME.fullmatch(folder.name)
        if found is None or found[1] != _here() or folder.is_symlink():
            continue
        try:
            if folder.stat().st_uid == os.getuid() and not _runs(int(found[2])):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # gone meanwhile
            continue


@cache
def _here() -> str:
    """This host and its namespace of processes: elsewhere the same numbers are other processes."""
    namespace = Path("/proc/self/ns/pid")
    there = os.readlink(namespace) if namespace.exists() else ""
    return f"{zlib.crc32(f'{socket.gethostname()} {there}'.encode()):08x}"


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
