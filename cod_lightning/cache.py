"""Folders that are made once and then found in the cache: whole or not there, this user's own, and as they were written.

Also the source files that decide what classes do, which belong to the identity of what they make.
"""

import ast
import contextlib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import stat
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout

from cod_lightning.errors import ConfigError
from cod_lightning.files import check_folder, later_rank, sync

MANIFEST = "manifest.json"
_KEY = "COD_LIGHTNING_CACHE"
"""Environment variable that names the cache; without it, it lies in the user's own."""
_LIBRARIES = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def made_once(kind: str, identity: str, make: Callable[[Path], None], what: str) -> Path:
    """The folder of that identity, made now unless the cache has it; of several processes one makes it, and the others wait.

    Args:
        kind: Folder of the cache in which it lies.
        identity: A digest of whatever decides its content.
        make: Makes the folder that it is given, and nothing else in it, which takes its place once it is whole.
        what: What is made, for messages.

    Raises:
        ConfigError: As `cache_folder` does.
    """
    folder = cache_folder(kind) / identity
    with _alone(folder, what):
        if (damage := _damage(folder)) is None:
            return folder
        if os.path.lexists(folder):
            print(f"{what}: {folder} is not used and is made anew, since {damage}", file=sys.stderr)
        working = folder.with_name(f"{identity}.part")
        shutil.rmtree(working, ignore_errors=True)  # of a process that was killed
        make(working)
        _write_manifest(working)
        if folder.is_symlink():
            folder.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        working.rename(folder)
        sync(folder.parent)
    return folder


def cache_folder(kind: str) -> Path:
    """That folder of the cache, made if need be. Raises `ConfigError` where it has no place, or others may write there."""
    try:
        cache = Path(os.environ.get(_KEY) or Path.home() / ".cache" / "cod_lightning") / kind
    except RuntimeError as error:
        expected = "a folder, since this user has no home with a .cache"
        raise ConfigError(_KEY, "empty", expected, f"Do export {_KEY}=$PWD/cache, say.") from error
    check_folder(cache, _KEY)
    cache.mkdir(mode=0o755, parents=True, exist_ok=True)
    facts = cache.stat()
    if facts.st_uid != os.geteuid() or facts.st_mode & stat.S_IWOTH:
        expected = "a folder of this user's that not everyone can write, since what lies there is trained on"
        raise ConfigError(_KEY, cache.parent, expected, f"Change {cache}, or name another.")
    return cache


def digests(files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of files that are on disk for good, by their names."""
    found = {}
    for path in files:
        sync(path)
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _write_manifest(folder: Path) -> None:
    """Note the digests of all files in the folder, and what they are, for `_damage`."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found[path.relative_to(folder).as_posix()] = digests([path])[path.name]
    (folder / MANIFEST).write_text(json.dumps({"identity": folder.stem, "sha256": found}, indent=1) + "\n")
    sync(folder / MANIFEST)
    sync(folder)


def _damage(folder: Path) -> str | None:
    """What keeps the folder from being what this user made there by its name, or None. Reads all of it; follows no link."""
    try:
        for path in (folder, *folder.rglob("*")):
            facts = path.lstat()
            if not (stat.S_ISDIR(facts.st_mode) or stat.S_ISREG(facts.st_mode)):
                return f"{path.name} in it is a link, or no file"
            if facts.st_uid != os.geteuid():
                return f"{path.name} in it belongs to another user"
        noted = json.loads((folder / MANIFEST).read_text())
        if noted["identity"] != folder.name:
            return "it was made for something else"
        there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {MANIFEST}
        if differing := sorted(there ^ noted["sha256"].keys()):
            return f"{differing[0]} in it is missing, or was added"
        changed = [
            name for name, digest in noted["sha256"].items() if digests([folder / name])[Path(name).name] != digest
        ]
        return f"{changed[0]} in it is not as it was written" if changed else None
    except (ValueError, LookupError, TypeError, AttributeError, OSError, RecursionError) as error:
        return f"its {MANIFEST} cannot be read ({type(error).__name__})"


def _alone(folder: Path, what: str) -> AcquireReturnProxy:
    """The lock of this folder, held."""
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        if not later_rank():
            print(f"{what}: another process makes {folder}; waiting for it", file=sys.stderr)
        return lock.acquire()


def sources(modules: Iterable[str]) -> list[Path]:
    """The source of each module and of all that it imports, anywhere in it, from its own package or from outside the libraries.

    Nothing is imported for it, so that the answer does not depend on what this process has imported.
    """
    todo = sorted(set(modules))
    own = {name.partition(".")[0] for name in todo}
    found: dict[str, Path] = {}
    specs: dict[str, ModuleSpec | None] = {}
    while todo:
        name = todo.pop()
        top = name.partition(".")[0]
        if top not in specs:
            specs[top] = _spec(top, own)
        if name not in found and (path := _file(specs[top], name)):
            found[name] = path
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            todo += _imports(path, package)
    return [found[name] for name in sorted(found)]


def class_paths(config: str) -> list[str]:
    """The classes that a config (YAML) names, sorted."""
    return sorted(set(re.findall(r"\bclass_path: ([\w.]+\.\w+)", config)))


def _spec(top: str, own: set[str]) -> ModuleSpec | None:
    """Of a module without a dot; None for one of a library."""
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # such as __main__
        return None
    if spec is None or top in own:
        return spec
    places = [spec.origin or "", *(spec.submodule_search_locations or ())]
    is_library = spec.origin in ("built-in", "frozen") or any(
        Path(place).is_relative_to(folder) for place in places if place for folder in _LIBRARIES
    )
    return None if is_library else spec


def _file(spec: ModuleSpec | None, name: str) -> Path | None:
    """Where the module's source lies; None where it has none, as a class that is imported by name."""
    if spec is None:
        return None
    rest = name.split(".")[1:]
    if spec.submodule_search_locations is None:
        places = [] if rest else [Path(spec.origin or "")]
    else:
        folders = [Path(place, *rest) for place in spec.submodule_search_locations]
        places = [place for folder in folders for place in (folder / "__init__.py", folder.with_suffix(".py"))]
    return next((place for place in places if place.suffix == ".py" and place.is_file()), None)


def _imports(path: Path, package: str) -> Iterator[str]:
    """Names of what a file may import: of `from a import b` both a and a.b."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError):  # of a file for another Python, say
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with contextlib.suppress(ImportError):  # of a file that serves with and without a package
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                yield from (base, *(f"{base}.{alias.name}" for alias in node.names))
