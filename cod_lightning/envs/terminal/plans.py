"""The usual commands for each kind of task, under a belief about the site."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cod_lightning.envs.terminal.options import MOST_COMMANDS
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
    """What a task's text states: system, host, account, kind of task, and the parts of its sentence."""

    system: str
    host: str
    user: str
    type: str
    parts: Mapping[str, str]


def plan(view: TaskText, believed: Quirks) -> tuple[Step, ...]:
    """Steps in order, without going to the host and back."""
    return tuple(_Planner(view, believed).steps())


def next_commands(view: TaskText, believed: Quirks, done: Collection[str], side: str) -> tuple[tuple[str, str], ...]:
    """(name, command) of all that is left to do; `enter` goes to the host, `leave` comes back."""
    found: list[tuple[str, str]] = []
    for step in plan(view, believed):
        if step.name in done:
            continue
        if step.side != side:
            found.append(("enter", enter(view, believed)) if step.side == REMOTE else ("leave", "exit"))
            side = step.side
        found.append((step.name, step.command))
    return tuple(found)


def num_lines(view: TaskText, believed: Quirks) -> int:
    """Lines that the whole plan takes from the local side."""
    return -(-len(next_commands(view, believed, (), LOCAL)) // MOST_COMMANDS)


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

    def tool(self, name: str) -> str:
        prefix = self.believed.tools
        return prefix + name if prefix.endswith("-") or not prefix else f"{prefix} {name}"

    def transfer(self, source: str, target: str) -> str:
        believed = self.believed
        if believed.transfer == "rsync":
            route = " ".join(_route(believed, "-p"))
            way = f" -e 'ssh {route}'" if route else ""
            return f"rsync -a{way} {source} {target}"
        return " ".join([believed.transfer or "scp", *_route(believed, "-P"), source, target])

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

    def upload(self) -> list[Step]:
        return self.push(self.local(self.part("file")), self.part("file"), self.remote())

    def pack_upload(self) -> list[Step]:
        packed = self.pack(LOCAL, self.local(), self.part("file"), self.part("other"))
        return [packed, *self.push(self.local(self.part("other")), self.part("other"), self.remote())]

    def steps(self) -> list[Step]:
        match self.view.type:
            case "upload":
                return self.upload()
            case "pack_upload":
                return self.pack_upload()
            case "download":
                return [self.pull(self.local())]
            case "download_rename":
                return [self.pull(self.local(self.part("other")))]
            case "download_extract":
                return [self.pull(self.local()), self.extract(LOCAL, self.local(self.part("file")), self.local())]
            case "pack_upload_extract":
                return [*self.pack_upload(), self.extract(REMOTE, self.remote(self.part("other")), self.remote())]
            case "mkdir_upload":
                folder = self.remote(self.part("path"))
                made = Step("mkdir", REMOTE, f"{self.tool('mkdir')} -p {folder}")
                return [made, *self.push(self.local(self.part("file")), self.part("file"), folder)]
            case "upload_chmod":
                changed = f"chmod {self.part('mode')} {self.remote(self.part('file'))}"
                return [*self.upload(), Step("chmod", REMOTE, changed)]
            case "upload_delete_source":
                return [*self.upload(), Step("delete", LOCAL, f"{self.tool('rm')} {self.local(self.part('file'))}")]
            case "backup_replace":
                kept = f"{self.tool('mv')} {self.remote(self.part('file'))} {self.remote(self.part('other'))}"
                return [Step("backup", REMOTE, kept), *self.upload()]
        return [self.on_one_side()]

    def on_one_side(self) -> Step:
        """The step of a task that concerns the files of one machine only."""
        side, kind = self.side, self.view.type
        if kind == "mkdir":
            path = f"{self.part('home')}/{self.part('path')}"
            return Step(kind, side, f"{self.tool('mkdir')} -p {self.at_home(path) if side == LOCAL else path}")
        file = self.here(self.part("file"))
        match kind:
            case "rename" | "move":
                return Step("rename", side, f"{self.tool('mv')} {file} {self.here(self.part('other'))}")
            case "copy":
                return Step(kind, side, f"{self.tool('cp')} {file} {self.here(self.part('other'))}")
            case "chmod":
                return Step(kind, side, f"chmod {self.part('mode')} {file}")
            case "delete":
                return Step(kind, side, f"{self.tool('rm')} {file}")
        return self.pack(side, self.here(), self.part("file"), self.part("other"))
