"""The usual commands for each kind of task, given what one believes of the site."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from cod_lightning.envs.terminal.quirks import Quirks

LOCAL, REMOTE = "local", "remote"


@dataclass(frozen=True, slots=True)
class Step:
    """One command, the machine that it is typed on, and a name for it."""

    name: str
    side: str
    command: str


@dataclass(frozen=True, slots=True)
class TaskText:
    """What a task's text tells: system, host, account, kind of task, and the parts of its sentence."""

    system: str
    host: str
    user: str
    type: str
    parts: Mapping[str, str]


def plan(view: TaskText, believed: Quirks) -> tuple[Step, ...]:
    """Steps in order, without going to the host and back."""
    return tuple(_Planner(view, believed).steps())


def next_commands(
    view: TaskText, believed: Quirks, done: Collection[str], side: str, most: int
) -> tuple[tuple[str, str], ...]:
    """(name, command) of the next line, at most so many; `enter` goes to the host, `leave` comes back."""
    found: list[tuple[str, str]] = []
    for step in plan(view, believed):
        if step.name in done:
            continue
        if step.side != side:
            found.append(("enter", enter(view, believed)) if step.side == REMOTE else ("leave", "exit"))
            side = step.side
        found.append((step.name, step.command))
    return tuple(found[:most])


def num_lines(view: TaskText, believed: Quirks, most: int) -> int:
    """Lines that the whole plan takes from the local side."""
    return -(-len(next_commands(view, believed, (), LOCAL, 10_000)) // most)


def enter(view: TaskText, believed: Quirks) -> str:
    """The ssh command."""
    return " ".join(["ssh", *_route(believed, "-p"), f"{believed.login or view.user}@{view.host}"])


def _route(believed: Quirks, port: str) -> tuple[str, ...]:
    kind, _, value = believed.route.partition(" ")
    return {"jump": ("-J", value), "port": (port, value)}.get(kind, ())


@dataclass(frozen=True, slots=True)
class _Planner:
    view: TaskText
    believed: Quirks

    def steps(self) -> Sequence[Step]:
        return _STEPS[self.view.type](self)

    # ------------------------------------------------------------------ paths

    def part(self, name: str) -> str:
        return self.view.parts[name]

    def local(self, *rest: str) -> str:
        """A path in the local folder of the task."""
        return self.at_home("/".join([self.part("local" if "local" in self.view.parts else "folder"), *rest]))

    def at_home(self, path: str) -> str:
        """The path with the real home, in the system's spelling."""
        if self.believed.home:
            path = path.replace("%USERPROFILE%", self.believed.home).replace("~", self.believed.home, 1)
        return path.replace("/", "\\") if self.view.system == "windows" else path

    def remote(self, *rest: str) -> str:
        """A path in the remote folder of the task."""
        folder = self.part("remote" if "remote" in self.view.parts else "folder")
        kind, _, mount = self.believed.place.partition(" ")
        return "/".join([mount if kind == "mount" else folder, *rest])

    def here(self, *rest: str) -> str:
        """A path on the side of the task."""
        return self.local(*rest) if self.side == LOCAL else self.remote(*rest)

    @property
    def side(self) -> str:
        return self.view.parts.get("side", LOCAL)

    # ------------------------------------------------------------------ commands

    def tool(self, name: str) -> str:
        prefix = self.believed.tools
        return prefix + name if prefix.endswith("-") or not prefix else f"{prefix} {name}"

    def transfer(self, source: str, target: str) -> str:
        believed = self.believed
        if believed.transfer == "rsync":
            route = " ".join(_route(believed, "-p"))
            way = f" -e 'ssh {route}'" if route else ""
            return f"rsync -a{way} {source} {target}"
        words = [believed.transfer or "scp", *_route(believed, "-P"), source, target]
        return " ".join(words)

    def far(self, path: str) -> str:
        return f"{self.believed.login or self.view.user}@{self.view.host}:{path}"

    def push(self, source: str, name: str, folder: str) -> list[Step]:
        """Bring a local file into a remote folder, by the drop folder where that must be."""
        kind, _, drop = self.believed.place.partition(" ")
        if kind != "drop":
            return [Step("push", LOCAL, self.transfer(source, self.far(f"{folder}/{name}")))]
        return [
            Step("push to drop", LOCAL, self.transfer(source, self.far(f"{drop}/{name}"))),
            Step("place", REMOTE, f"{self.tool('mv')} {drop}/{name} {folder}/{name}"),
        ]

    def pull(self, target: str) -> Step:
        return Step("pull", LOCAL, self.transfer(self.far(self.remote(self.part("file"))), target))

    def pack(self, side: str, folder: str, inner: str, archive: str) -> Step:
        """`folder/inner` into `folder/archive`."""
        separator = "\\" if side == LOCAL and self.view.system == "windows" else "/"
        if archive.endswith(".zip"):
            return Step("pack", side, f"zip -r {folder}{separator}{archive} {folder}{separator}{inner}")
        flags = "-czf" if archive.endswith(".gz") else "-cf"
        return Step("pack", side, f"tar {flags} {folder}/{archive} -C {folder} {inner}")

    @staticmethod
    def extract(side: str, archive: str, folder: str) -> Step:
        if archive.endswith(".zip"):
            return Step("extract", side, f"unzip -o {archive} -d {folder}")
        return Step("extract", side, f"tar -xf {archive} -C {folder}")

    # ------------------------------------------------------------------ tasks

    def upload(self) -> list[Step]:
        return self.push(self.local(self.part("file")), self.part("file"), self.remote())

    def download(self) -> list[Step]:
        return [self.pull(self.local())]

    def rename(self) -> list[Step]:
        return [
            Step(
                "rename", self.side, f"{self.tool('mv')} {self.here(self.part('file'))} {self.here(self.part('other'))}"
            )
        ]

    def chmod(self) -> list[Step]:
        return [Step("chmod", self.side, f"chmod {self.part('mode')} {self.here(self.part('file'))}")]

    def delete(self) -> list[Step]:
        return [Step("delete", self.side, f"{self.tool('rm')} {self.here(self.part('file'))}")]

    def copy(self) -> list[Step]:
        return [
            Step("copy", self.side, f"{self.tool('cp')} {self.here(self.part('file'))} {self.here(self.part('other'))}")
        ]

    def pack_here(self) -> list[Step]:
        return [self.pack(self.side, self.here(), self.part("file"), self.part("other"))]

    def mkdir(self) -> list[Step]:
        path = f"{self.part('home')}/{self.part('path')}"
        return [
            Step("mkdir", self.side, f"{self.tool('mkdir')} -p {self.at_home(path) if self.side == LOCAL else path}")
        ]

    def pack_upload(self) -> list[Step]:
        packed = self.pack(LOCAL, self.local(), self.part("file"), self.part("other"))
        return [packed, *self.push(self.local(self.part("other")), self.part("other"), self.remote())]

    def download_extract(self) -> list[Step]:
        return [self.pull(self.local()), self.extract(LOCAL, self.local(self.part("file")), self.local())]

    def mkdir_upload(self) -> list[Step]:
        folder = self.remote(self.part("path"))
        made = Step("mkdir", REMOTE, f"{self.tool('mkdir')} -p {folder}")
        return [made, *self.push(self.local(self.part("file")), self.part("file"), folder)]

    def upload_chmod(self) -> list[Step]:
        changed = Step("chmod", REMOTE, f"chmod {self.part('mode')} {self.remote(self.part('file'))}")
        return [*self.upload(), changed]

    def upload_delete_source(self) -> list[Step]:
        deleted = Step("delete", LOCAL, f"{self.tool('rm')} {self.local(self.part('file'))}")
        return [*self.upload(), deleted]

    def pack_upload_extract(self) -> list[Step]:
        return [*self.pack_upload(), self.extract(REMOTE, self.remote(self.part("other")), self.remote())]

    def download_rename(self) -> list[Step]:
        return [self.pull(self.local(self.part("other")))]

    def backup_replace(self) -> list[Step]:
        kept = f"{self.tool('mv')} {self.remote(self.part('file'))} {self.remote(self.part('other'))}"
        return [Step("backup", REMOTE, kept), *self.upload()]


_STEPS: dict[str, Callable[[_Planner], list[Step]]] = {
    "upload": _Planner.upload,
    "download": _Planner.download,
    "rename": _Planner.rename,
    "move": _Planner.rename,
    "chmod": _Planner.chmod,
    "delete": _Planner.delete,
    "copy": _Planner.copy,
    "pack": _Planner.pack_here,
    "mkdir": _Planner.mkdir,
    "pack_upload": _Planner.pack_upload,
    "download_extract": _Planner.download_extract,
    "mkdir_upload": _Planner.mkdir_upload,
    "upload_chmod": _Planner.upload_chmod,
    "upload_delete_source": _Planner.upload_delete_source,
    "pack_upload_extract": _Planner.pack_upload_extract,
    "download_rename": _Planner.download_rename,
    "backup_replace": _Planner.backup_replace,
}
