"""A computer in memory: folders, files, paths in the style of its system, and what may be written where."""

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from cod_lightning.envs.base import Unchanging

Path = tuple[str, ...]
"""("", "home", "user") or ("C:", "Users", "user")."""

MOST_NODES = 400
MOST_DEPTH = 16
MOST_LETTERS = 64
MOST_LOOKS = 5_000
"""Names that the patterns of a line are compared with."""
MOST_NESTING = 3
"""Archives inside archives."""
MANAGED = ("cp", "mkdir", "mv", "rm")
"""Commands that a site may offer under other names only."""

MISSING = "No such file or directory"
EXISTS = "File exists"
IS_FOLDER = "Is a directory"
NO_FOLDER = "Not a directory"
SEALED = "Read-only file system"
_ON_WINDOWS = {
    MISSING: "The system cannot find the file specified",
    EXISTS: "A subdirectory or file already exists",
    IS_FOLDER: "Access is denied, it is a directory",
    NO_FOLDER: "The directory name is invalid",
}


class ShellError(Exception):
    """A command failed: what it printed, and its exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.message, self.code = message, code


@dataclass(frozen=True, slots=True)
class Archive(Unchanging):
    """Members (path, file) of a tar, zip or gz file."""

    kind: str
    members: tuple[tuple[Path, "File"], ...]
    nesting: int


@dataclass(frozen=True, slots=True)
class File(Unchanging):
    """Content and three octal digits."""

    data: "str | Archive"
    mode: str = "644"


@dataclass(slots=True)
class Folder:
    """Entries by name."""

    entries: dict[str, "File | Folder"] = field(default_factory=dict)
    mode: str = "755"


Node = File | Folder


@dataclass(slots=True)
class Machine:
    """One computer. Paths are resolved against `cwd`; `sealed` is read-only there and writable under `writable`."""

    system: str
    """linux, mac or windows."""
    name: str
    user: str
    home: Path
    """What `~` stands for."""
    prefix: str = ""
    """How the managed commands begin here, `safe-` or `busybox`; empty for their usual names."""
    sealed: Path = ()
    writable: Path = ()
    cwd: Path = ()
    root: Folder = field(default_factory=Folder)
    num_nodes: int = 0
    patience: int = MOST_LOOKS
    """Names that patterns may still be compared with."""

    def __post_init__(self) -> None:
        """An empty disk, and on it the first folder."""
        top = "C:" if self.windows else ""
        self.root.entries[top] = Folder()
        self.cwd = self.cwd or (top,)

    @property
    def windows(self) -> bool:
        """Backslashes and drive letters."""
        return self.system == "windows"

    # ------------------------------------------------------------------ paths

    def resolve(self, text: str) -> Path:
        """Absolute path of what was typed, `.` and `..` removed."""
        if "\0" in text or len(text) > 400:
            raise ShellError(self.words("path", "cannot use", text, "File name too long"))
        parts: list[str]
        if self.windows:
            text = text.replace("\\", "/")
            drive = re.match(r"[A-Za-z]:", text)
            parts = [drive[0].upper()] if drive else [self.cwd[0]] if text.startswith("/") else list(self.cwd)
            text = text[2:] if drive else text
        else:
            parts = [""] if text.startswith("/") else list(self.cwd)
        for part in text.split("/"):
            if part == "..":
                del parts[max(1, len(parts) - 1) :]
            elif part and part != ".":
                parts.append(part)
        if len(parts) > MOST_DEPTH or any(len(part) > MOST_LETTERS for part in parts):
            raise ShellError(self.words("path", "cannot use", text, "File name too long"))
        return tuple(parts)

    def spell(self, path: Path) -> str:
        """As this system writes it."""
        if len(path) == 1:
            return f"{path[0]}\\" if self.windows else "/"
        return ("\\" if self.windows else "/").join(path)

    def words(self, command: str, verb: str, path: str, reason: str) -> str:
        """An error in the style of this system."""
        path = path if len(path) <= 100 else f"{path[:100]}..."
        if self.windows:
            return f"{_ON_WINDOWS.get(reason, reason)}: {path}"
        return f"{command}: {verb} '{path}': {reason}" if self.system == "linux" else f"{command}: {path}: {reason}"

    # ------------------------------------------------------------------ looking

    def find(self, path: Path) -> Node | None:
        """What lies there, or None."""
        node: Node = self.root
        for part in self._real(path):
            if not isinstance(node, Folder):
                return None
            found = node.entries.get(part) or node.entries.get(self._key(node, part))
            if found is None:
                return None
            node = found
        return node

    def look(self, place: str, command: str, verb: str, code: int = 1) -> tuple[Path, Node]:
        """The path of what was typed and what lies there; raises the command's error where nothing does."""
        path = self.resolve(place)
        node = self.find(path)
        if node is None:
            raise ShellError(self.words(command, verb, place, MISSING), code)
        return path, node

    def glob(self, pattern: str) -> list[str]:
        """Existing paths that match, in the form of the pattern; patterns with `[*]` for quoted letters. Bounded.

        A name that begins with a dot matches only a pattern that does.
        """
        slashed = pattern.replace("\\", "/") if self.windows else pattern
        parts, fold = slashed.split("/"), str.lower if self.windows else str
        found = [""]
        for n, part in enumerate(parts):
            last = n == len(parts) - 1
            if not re.search(r"[*?\[]", part):
                found = [base + part + ("" if last else "/") for base in found]
                continue
            longer: list[str] = []
            for base in found[:20]:
                folder = self.find(self.resolve(base or "."))
                if isinstance(folder, Folder):
                    self.patience -= len(folder.entries)
                    if self.patience < 0:
                        raise ShellError("shell: too many names to compare with patterns", 2)
                    shown = [name for name in sorted(folder.entries) if name[0] != "." or part[0] == "."]
                    longer += [
                        base + name + ("" if last else "/") for name in shown if fnmatchcase(fold(name), fold(part))
                    ]
            found = longer[:100]
        plain = [text for text in found if self.find(self.resolve(text)) is not None]
        return [text.replace("/", "\\") for text in plain] if self.windows else plain

    # ------------------------------------------------------------------ changing

    def put(self, path: Path, node: Node, command: str = "cp") -> None:
        """Place a file or folder; its parent exists."""
        self.check_writable(path, command)
        parent = self.find(path[:-1])
        if len(path) < 2 or not path[-1] or not isinstance(parent, Folder):
            reason = MISSING if parent is None else NO_FOLDER
            raise ShellError(self.words(command, "cannot create", self.spell(path), reason))
        if len(path) + _depth(node) > MOST_DEPTH:
            raise ShellError(self.words(command, "cannot create", self.spell(path), "File name too long"))
        key = self._key(parent, path[-1])
        more = count(node) - (count(parent.entries[key]) if key in parent.entries else 0)
        if self.num_nodes + more > MOST_NODES:
            raise ShellError(self.words(command, "cannot create", self.spell(path), "No space left on device"))
        self.num_nodes += more
        parent.entries[key] = node

    def take(self, path: Path, command: str = "rm") -> Node:
        """Remove what lies there."""
        self.check_writable(path, command)
        node, parent = self.find(path), self.find(path[:-1])
        if node is None or len(path) < 2 or not isinstance(parent, Folder):
            raise ShellError(self.words(command, "cannot remove", self.spell(path), MISSING))
        if any(one[: len(path)] == path for one in (self.cwd, self.home, self.sealed, self.writable)):
            raise ShellError(self.words(command, "cannot remove", self.spell(path), "Device or resource busy"))
        self.num_nodes -= count(node)
        del parent.entries[self._key(parent, path[-1])]
        return node

    def make(self, path: Path, command: str = "mkdir") -> Folder:
        """The folder at that path, made with its parents where missing."""
        for n in range(2, len(path) + 1):
            node = self.find(path[:n])
            if node is None:
                self.put(path[:n], Folder(), command)
            elif isinstance(node, File):
                raise ShellError(self.words(command, "cannot create directory", self.spell(path[:n]), NO_FOLDER))
        folder = self.find(path)
        if not isinstance(folder, Folder):
            raise ShellError(self.words(command, "cannot create directory", self.spell(path), MISSING))
        return folder

    def check_writable(self, path: Path, command: str) -> None:
        """Raise where the path is seen through a read-only mount."""
        if self.sealed and path[: len(self.sealed)] == self.sealed:
            raise ShellError(self.words(command, "cannot write", self.spell(path), SEALED))

    def write(self, path: str, data: str | Archive, mode: str = "644") -> None:
        """Set up a file with all its folders, read-only or not."""
        sealed, self.sealed = self.sealed, ()
        place = self.resolve(path)
        self.make(place[:-1])
        self.put(place, File(data, mode))
        self.sealed = sealed

    def folder(self, path: str) -> None:
        """Set up a folder."""
        sealed, self.sealed = self.sealed, ()
        self.make(self.resolve(path))
        self.sealed = sealed

    def _real(self, path: Path) -> Path:
        if self.writable and self.sealed and path[: len(self.writable)] == self.writable:
            return self.sealed + path[len(self.writable) :]
        return path

    def _key(self, folder: Folder, name: str) -> str:
        if self.windows and name not in folder.entries:
            return next((key for key in folder.entries if key.lower() == name.lower()), name)
        return name


def count(node: Node) -> int:
    """Files and folders, itself included."""
    return 1 + sum(map(count, node.entries.values())) if isinstance(node, Folder) else 1


def copied(node: Node) -> Node:
    """A copy that shares no folder; files never change and are shared."""
    if isinstance(node, File):
        return node
    return Folder({name: copied(entry) for name, entry in node.entries.items()}, node.mode)


def files_of(node: Node, at: Path) -> list[tuple[Path, File]]:
    """All files below, with their paths."""
    if isinstance(node, File):
        return [(at, node)]
    return [found for name, entry in node.entries.items() for found in files_of(entry, (*at, name))]


def _depth(node: Node) -> int:
    return 1 + max(map(_depth, node.entries.values()), default=0) if isinstance(node, Folder) else 0
