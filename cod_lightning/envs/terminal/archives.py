"""tar, zip, unzip, gzip, gunzip. Members are stored under the base name of what was packed."""

from collections.abc import Sequence

from cod_lightning.envs.terminal.machine import (
    EXISTS,
    MISSING,
    MOST_NESTING,
    Archive,
    File,
    Folder,
    Machine,
    Path,
    ShellError,
    files_of,
)
from cod_lightning.envs.terminal.options import Session, options

MOST_MEMBERS = 100


def tar(session: Session, arguments: list[str]) -> str:
    """`-c`, `-x` or `-t`, with `-z`, `-v`, `-f FILE` and `-C FOLDER`; the first dash may be left out."""
    here = session.here
    if arguments and not arguments[0].startswith("-"):
        arguments = [f"-{arguments[0]}", *arguments[1:]]
    flags, values, places = options(here, "tar", arguments, "cxtzv", valued="fC")
    if len(flags & set("cxt")) != 1 or "f" not in values:
        raise ShellError("tar: give one of -c, -x, -t, and -f with the archive", 2)
    base = here.resolve(values.get("C", "."))
    if not isinstance(here.find(base), Folder):
        raise ShellError(here.words("tar", "cannot open", values["C"], MISSING), 2)
    path = here.resolve(values["f"])
    if "c" in flags:
        if not places:
            raise ShellError("tar: Cowardly refusing to create an empty archive", 2)
        here.put(path, File(_packed(here, "tar", "tar", base, places)), "tar")
        return ""
    archive = _archive(here, "tar", path, "tar")
    if "t" in flags:
        return "\n".join("/".join(member) for member, _ in archive.members[:50])
    return _unpack(here, "tar", archive, base)


def zip_(session: Session, arguments: list[str]) -> str:
    """`zip [-r] ARCHIVE FILES...`; makes missing folders above the archive."""
    here = session.here
    flags, _, places = options(here, "zip", arguments, "rqjv")
    if len(places) < 2:
        raise ShellError("zip error: Nothing to do!", 12)
    path = here.resolve(places[0] if "." in places[0][-8:] else f"{places[0]}.zip")
    nodes = [here.find(here.resolve(place)) for place in places[1:]]
    if "r" not in flags and any(isinstance(node, Folder) for node in nodes):
        raise ShellError("zip error: Nothing to do! (folders need -r)", 12)
    packed = _packed(here, "zip", "zip", here.cwd, places[1:])
    here.check_writable(path, "zip")
    here.make(path[:-1], "zip")
    here.put(path, File(packed), "zip")
    return ""


def unzip(session: Session, arguments: list[str]) -> str:
    """`unzip [-o] [-q] ARCHIVE [-d FOLDER]`."""
    here = session.here
    flags, values, places = options(here, "unzip", arguments, "oqlv", valued="d")
    if not places:
        raise ShellError("unzip: missing archive", 10)
    archive = _archive(here, "unzip", here.resolve(places[0]), "zip")
    if "l" in flags:
        return "\n".join("/".join(member) for member, _ in archive.members[:50])
    target = here.resolve(values.get("d", "."))
    here.check_writable(target, "unzip")
    here.make(target, "unzip")
    return _unpack(here, "unzip", archive, target)


def gzip(session: Session, arguments: list[str]) -> str:
    """Replace files by compressed ones; `-k` keeps them."""
    here = session.here
    flags, _, places = options(here, "gzip", arguments, "kfvd", least=1)
    if "d" in flags:
        return gunzip(session, [*(["-k"] if "k" in flags else []), "--", *places])
    for place in places:
        path = here.resolve(place)
        node = here.find(path)
        if not isinstance(node, File):
            raise ShellError(here.words("gzip", "cannot open", place, MISSING))
        if path[-1].endswith(".gz"):
            raise ShellError(f"gzip: {path[-1]} already has .gz suffix -- unchanged", 2)
        here.put((*path[:-1], f"{path[-1]}.gz"), File(_nested("gz", [((path[-1],), node)], "gzip")), "gzip")
        if "k" not in flags:
            here.take(path, "gzip")
    return ""


def gunzip(session: Session, arguments: list[str]) -> str:
    """The reverse."""
    here = session.here
    flags, _, places = options(here, "gunzip", arguments, "kfv", least=1)
    for place in places:
        path = here.resolve(place)
        archive = _archive(here, "gunzip", path, "gz")
        if not path[-1].endswith(".gz"):
            raise ShellError(f"gunzip: {path[-1]}: unknown suffix -- ignored", 2)
        here.put((*path[:-1], path[-1].removesuffix(".gz")), archive.members[0][1], "gunzip")
        if "k" not in flags:
            here.take(path, "gunzip")
    return ""


def _packed(here: Machine, name: str, kind: str, base: Path, places: Sequence[str]) -> Archive:
    members: list[tuple[Path, File]] = []
    for place in places:
        path = _below(here, base, place)
        node = here.find(path)
        if node is None:
            raise ShellError(here.words(name, "cannot stat", place, MISSING), 2)
        bare = isinstance(node, Folder) and (path == base or len(path) == 1)
        members += files_of(node, () if bare else (path[-1],))
    return _nested(kind, members, name)


def _nested(kind: str, members: Sequence[tuple[Path, File]], name: str) -> Archive:
    nesting = 1 + max((file.data.nesting for _, file in members if isinstance(file.data, Archive)), default=0)
    if nesting > MOST_NESTING or len(members) > MOST_MEMBERS:
        raise ShellError(f"{name}: too many members, or archives nested too deeply", 2)
    return Archive(kind, tuple(members), nesting)


def _below(here: Machine, base: Path, place: str) -> Path:
    before, here.cwd = here.cwd, base
    try:
        return here.resolve(place)
    finally:
        here.cwd = before


def _archive(here: Machine, name: str, path: Path, kind: str) -> Archive:
    node = here.find(path)
    if not isinstance(node, File):
        raise ShellError(here.words(name, "cannot open", here.spell(path), MISSING), 2)
    if not isinstance(node.data, Archive) or node.data.kind != kind:
        raise ShellError(f"{name}: {path[-1]} does not look like a {kind} archive", 2)
    return node.data


def _unpack(here: Machine, name: str, archive: Archive, target: Path) -> str:
    for member, file in archive.members:
        path = target + member
        here.check_writable(path, name)
        here.make(path[:-1], name)
        if isinstance(here.find(path), Folder):
            raise ShellError(here.words(name, "cannot create", here.spell(path), EXISTS), 2)
        here.put(path, file, name)
    return ""


zip_.__name__ = "zip"
HANDLERS = (tar, zip_, unzip, gzip, gunzip)
