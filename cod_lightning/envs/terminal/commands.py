"""Commands on files and folders of the present machine. Each returns what it prints or raises `ShellError`."""

import re
from collections.abc import Callable

from cod_lightning.envs.terminal import archives, transfer
from cod_lightning.envs.terminal.machine import (
    EXISTS,
    IS_FOLDER,
    MISSING,
    NO_FOLDER,
    File,
    Folder,
    Machine,
    Node,
    Path,
    ShellError,
    copied,
)
from cod_lightning.envs.terminal.options import Session, options

Handler = Callable[[Session, list[str]], str]
MOST_ENTRIES = 50
"""Entries of a listing; more are cut off."""
MOST_ECHO = 1_000


def ls(session: Session, arguments: list[str]) -> str:
    """Names in a folder, folders with a slash; `-a` shows hidden ones, `-l` modes."""
    here = session.here
    flags, _, places = options(here, "ls", arguments, "laAh1RtrSF")
    shown: list[str] = []
    for place in places or ["."]:
        _, node = here.look(place, "ls", "cannot access", 2)
        if len(places) > 1 and isinstance(node, Folder):
            shown.append(f"{place}:")
        entries = list(node.entries.items()) if isinstance(node, Folder) else [(place, node)]
        hidden = "a" in flags or "A" in flags or isinstance(node, File)
        shown += [_entry(name, entry, "l" in flags) for name, entry in sorted(entries) if hidden or name[0] != "."]
    if len(shown) > MOST_ENTRIES:
        shown = [*shown[:MOST_ENTRIES], f"... ({len(shown) - MOST_ENTRIES} more)"]
    return "\n".join(shown)


def _entry(name: str, node: Node, long: bool) -> str:
    folder = isinstance(node, Folder)
    shown = f"{name}/" if folder else name
    if not long:
        return shown
    bits = "".join("rwx"[n] if int(digit) & (4 >> n) else "-" for digit in node.mode for n in range(3))
    return f"{'d' if folder else '-'}{bits} {shown}"


def cd(session: Session, arguments: list[str]) -> str:
    """Go to a folder; home without one."""
    here = session.here
    if here.windows and arguments[:1] == ["/d"]:
        arguments = arguments[1:]
    if len(arguments) > 1:
        raise ShellError("cd: too many arguments")
    if not arguments and here.windows:
        return here.spell(here.cwd)
    path = here.resolve(arguments[0]) if arguments else here.home
    node = here.find(path)
    if not isinstance(node, Folder):
        typed = arguments[0] if arguments else here.spell(here.home)
        raise ShellError(here.words("cd", "cannot change to", typed, MISSING if node is None else NO_FOLDER))
    here.cwd = path
    return ""


def pwd(session: Session, arguments: list[str]) -> str:
    """The present folder."""
    return session.here.spell(session.here.cwd)


def cat(session: Session, arguments: list[str]) -> str:
    """What files hold."""
    here = session.here
    _, _, places = options(here, "cat", arguments, "n", least=1)
    shown: list[str] = []
    for place in places:
        node = here.find(here.resolve(place))
        if not isinstance(node, File):
            raise ShellError(here.words("cat", "cannot open", place, MISSING if node is None else IS_FOLDER))
        shown.append(node.data if isinstance(node.data, str) else f"(binary data: {node.data.kind} archive)")
    return "\n".join(shown)


def mkdir(session: Session, arguments: list[str]) -> str:
    """Make folders; `-p` with parents."""
    here = session.here
    flags, _, places = options(here, "mkdir", arguments, "pv", least=1)
    for place in places:
        path = here.resolve(place)
        if "p" in flags:
            here.check_writable(path, "mkdir")
            here.make(path, "mkdir")
            continue
        if here.find(path) is not None:
            raise ShellError(here.words("mkdir", "cannot create directory", place, EXISTS))
        if here.find(path[:-1]) is None:
            raise ShellError(here.words("mkdir", "cannot create directory", place, MISSING))
        here.put(path, Folder(), "mkdir")
    return ""


def chmod(session: Session, arguments: list[str]) -> str:
    """Set three octal digits."""
    here = session.here
    flags, _, rest = options(here, "chmod", arguments, "Rv", least=2)
    mode = rest[0][1:] if re.fullmatch(r"0[0-7]{3}", rest[0]) else rest[0]
    if not re.fullmatch(r"[0-7]{3}", mode):
        raise ShellError(f"chmod: invalid mode: '{rest[0][:20]}' (three octal digits are expected)")
    for place in rest[1:]:
        path, node = here.look(place, "chmod", "cannot access")
        here.check_writable(path, "chmod")
        _set_mode(here, path, node, mode, "R" in flags)
    return ""


def _set_mode(here: Machine, path: Path, node: Node, mode: str, below: bool) -> None:
    if isinstance(node, File):
        here.put(path, File(node.data, mode), "chmod")
        return
    node.mode = mode
    for name, entry in list(node.entries.items()) if below else ():
        _set_mode(here, (*path, name), entry, mode, below)


def cp(session: Session, arguments: list[str]) -> str:
    """Copy; `-r` for folders; into the target if that is a folder."""
    flags, _, places = options(session.here, "cp", arguments, "rRapfvn", least=2)
    for source, node, target in _targets(session.here, "cp", places):
        if isinstance(node, Folder) and not flags & {"r", "R", "a"}:
            raise ShellError(f"cp: -r not specified; omitting directory '{source[-1]}'")
        session.here.put(target, copied(node), "cp")
    return ""


def mv(session: Session, arguments: list[str]) -> str:
    """Move or rename; into the target if that is a folder."""
    here = session.here
    _, _, places = options(here, "mv", arguments, "fvn", least=2)
    for source, node, target in _targets(here, "mv", places):
        if target == source:
            raise ShellError(f"mv: '{source[-1]}' and the target are the same file")
        here.check_writable(target, "mv")
        here.take(source, "mv")
        try:
            here.put(target, node, "mv")
        except ShellError:
            here.put(source, node, "mv")
            raise
    return ""


def _targets(here: Machine, name: str, places: list[str]) -> list[tuple[Path, Node, Path]]:
    """(source, what it is, where it shall be) for each source."""
    last = here.resolve(places[-1])
    into = here.find(last)
    if len(places) > 2 and not isinstance(into, Folder):
        raise ShellError(here.words(name, "target", places[-1], NO_FOLDER))
    if into is None and places[-1][-1:] in "/\\":
        raise ShellError(here.words(name, "cannot create regular file", places[-1], NO_FOLDER))
    found: list[tuple[Path, Node, Path]] = []
    for place in places[:-1]:
        path, node = here.look(place, name, "cannot stat")
        target = (*last, path[-1]) if isinstance(into, Folder) else last
        if isinstance(node, Folder) and target[: len(path)] == path:
            raise ShellError(f"{name}: cannot put a directory, '{path[-1]}', into itself")
        there = here.find(target)
        if isinstance(there, Folder) or (isinstance(there, File) and isinstance(node, Folder)):
            raise ShellError(here.words(name, "cannot overwrite", here.spell(target), EXISTS))
        found.append((path, node, target))
    return found


def rm(session: Session, arguments: list[str]) -> str:
    """Remove; `-r` for folders, `-f` without complaint about what is not there."""
    here = session.here
    flags, _, places = options(here, "rm", arguments, "rRfvi", "sqf", least=1)
    for place in places:
        path = here.resolve(place)
        node = here.find(path)
        if node is None:
            if "f" in flags:
                continue
            raise ShellError(here.words("rm", "cannot remove", place, MISSING))
        if isinstance(node, Folder) and not flags & {"r", "R", "s"}:
            raise ShellError(here.words("rm", "cannot remove", place, IS_FOLDER))
        here.take(path, "rm")
    return ""


def touch(session: Session, arguments: list[str]) -> str:
    """Make empty files where there are none."""
    here = session.here
    _, _, places = options(here, "touch", arguments, "", least=1)
    for place in places:
        path = here.resolve(place)
        if here.find(path) is None:
            here.put(path, File(""), "touch")
    return ""


def echo(session: Session, arguments: list[str]) -> str:
    """The words, at most 1000 letters."""
    return " ".join(arguments)[:MOST_ECHO]


def whoami(session: Session, arguments: list[str]) -> str:
    """The account."""
    return session.here.user


HANDLERS: dict[str, Handler] = {
    handler.__name__: handler
    for handler in (
        *(ls, cd, pwd, cat, mkdir, chmod, cp, mv, rm, touch, echo, whoami),
        *transfer.HANDLERS,
        *archives.HANDLERS,
    )
}
