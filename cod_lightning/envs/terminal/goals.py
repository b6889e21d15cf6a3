"""Both machines as a task finds them, and when its goal is reached, and if not, what is wrong."""

from dataclasses import dataclass

from cod_lightning.envs.terminal.machine import Archive, File, Folder, Machine, Node
from cod_lightning.envs.terminal.quirks import Site
from cod_lightning.envs.terminal.shell import Shell
from cod_lightning.envs.terminal.tasks import TerminalTask, local_home, real_home, separator
from cod_lightning.envs.terminal.transfer import KNOWN_HOSTS, MOUNTS, SERVER

_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"


def set_up(task: TerminalTask) -> Shell:
    """A session at the local machine, files in place."""
    local, remote = _local(task), _remote(task)
    kind, _, name = task.site.quirks.route.partition(" ")
    gateway = None
    if kind == "jump":
        gateway = Machine("linux", name, "guest", ("", "home", "guest"))
        gateway.folder("/home/guest")
    shell = Shell(task.site, local, remote, gateway)
    _fill(task, local, remote)
    for machine in (local, remote):
        machine.cwd = machine.home
    return shell


def _local(task: TerminalTask) -> Machine:
    site, quirks = task.site, task.site.quirks
    windows = site.system == "windows"
    machine = Machine(site.system, "local", "user", (), prefix=quirks.tools)
    elsewhere = "C:\\Windows\\Temp" if windows else "/tmp"
    machine.home = machine.resolve(elsewhere if quirks.home else real_home(site))
    machine.folder(elsewhere)
    machine.folder(real_home(site))
    kind, _, value = quirks.route.partition(" ")
    known = [f"[{site.host}]:{value} {_KEY}" if kind == "port" else f"{site.host} {_KEY}"]
    if kind == "jump":
        known.insert(0, f"{value} {_KEY}")
    machine.write(KNOWN_HOSTS[site.system], "\n".join(known))
    _own_tools(machine, "C:\\Tools" if windows else "/usr/local/bin")
    return machine


def _remote(task: TerminalTask) -> Machine:
    site = task.site
    machine = Machine("linux", site.host, site.login, ("", "home", site.login), prefix=site.quirks.tools)
    for folder in (f"/home/{site.user}", f"/home/{site.login}", "/tmp", site.remote_folder):
        machine.folder(folder)
    kind, _, path = site.quirks.place.partition(" ")
    if kind:
        machine.folder(path)
    machine.write(SERVER, f"ForceCommand internal-sftp -d {path}" if kind == "drop" else "UsePAM yes")
    root = "/dev/sda1 / ext4 rw 0 1"
    machine.write(MOUNTS, f"{root}\n{path} {site.remote_folder} none bind,ro 0 0" if kind == "mount" else root)
    _own_tools(machine, "/usr/local/bin")
    if kind == "mount":
        machine.sealed = machine.resolve(site.remote_folder)
        machine.writable = machine.resolve(path)
    return machine


def _own_tools(machine: Machine, folder: str) -> None:
    prefix = machine.prefix
    machine.folder(folder)
    names = [f"{prefix}{name}" for name in ("cp", "mkdir", "mv", "rm")] if prefix.endswith("-") else [prefix]
    for name in filter(None, names):
        machine.write(f"{folder}/{name}", "(program)", "755")


def _fill(task: TerminalTask, local: Machine, remote: Machine) -> None:
    site, kind = task.site, task.type
    places = {"local": (local, f"{real_home(site)}/{site.local_folder}"), "remote": (remote, site.remote_folder)}
    local.folder(places["local"][1])
    from_remote = kind in ("download", "download_extract", "download_rename")
    machine, folder = places["remote" if from_remote or task.side == "remote" else "local"]
    for name in task.decoys:
        machine.write(f"{folder}/{name}", task.text_of(name, " other"))
    if kind == "mkdir":
        return
    if kind == "download_extract":
        packed = tuple(((task.other, name), File(task.text_of(name))) for name in task.members)
        machine.write(f"{folder}/{task.file}", Archive("zip" if task.file.endswith(".zip") else "tar", packed, 1))
    elif kind in ("pack", "pack_upload", "pack_upload_extract"):
        for name in task.members:
            machine.write(f"{folder}/{task.file}/{name}", task.text_of(name))
    else:
        other_mode = kind == "chmod" and task.mode == "644"
        machine.write(f"{folder}/{task.file}", task.content, "600" if other_mode else "644")
    if kind == "move":
        machine.folder(f"{folder}/{task.other}")
    elif kind == "backup_replace":
        remote.write(f"{site.remote_folder}/{task.file}", task.text_of(task.file, " old"))


def missing(task: TerminalTask, shell: Shell) -> str:
    """Why the goal is not reached, or nothing: the first test that fails."""
    return _Check(task, shell).of_type()


@dataclass(frozen=True, slots=True)
class _Check:
    """Looks at both machines and says what is wrong, with paths as the task writes them."""

    task: TerminalTask
    shell: Shell

    def of_type(self) -> str:
        task = self.task
        side, file, other = task.side, task.file, task.other
        text = task.content
        match task.type:
            case "upload" | "mkdir_upload":
                return self.holds("remote", f"{other}/{file}" if task.type == "mkdir_upload" else file, text)
            case "download":
                return self.holds("local", file, text)
            case "rename":
                return self.holds(side, other, text) or self.absent(side, file)
            case "move":
                return self.holds(side, f"{other}/{file}", text) or self.absent(side, file)
            case "chmod":
                return self.holds(side, file, text) or self.has_mode(side)
            case "delete":
                others = (self.holds(side, name, task.text_of(name, " other")) for name in task.decoys)
                return self.absent(side, file) or next(filter(None, others), "")
            case "copy":
                return self.holds(side, other, text) or self.holds(side, file, text)
            case "pack":
                return self.packed(side)
            case "mkdir":
                return self.is_folder()
            case "pack_upload":
                return self.packed("remote")
            case "download_extract":
                return self.extracted("local")
            case "pack_upload_extract":
                return self.extracted("remote")
            case "upload_chmod":
                return self.holds("remote", file, text) or self.has_mode("remote")
            case "upload_delete_source":
                return self.holds("remote", file, text) or self.absent("local", file)
            case "download_rename":
                return self.holds("local", other, text) or self.absent("local", file)
            case _:
                return self.holds("remote", other, task.text_of(file, " old")) or self.holds("remote", file, text)

    def find(self, side: str, name: str) -> Node | None:
        site = self.task.site
        if side == "local":
            return at_local_home(self.shell.local, site, f"{site.local_folder}/{name}")
        return self.shell.remote.find(self.shell.remote.resolve(f"{site.remote_folder}/{name}"))

    def spot(self, side: str, name: str) -> str:
        site, slash = self.task.site, separator(self.task, side)
        folder = f"{local_home(site)}{slash}{site.local_folder}" if side == "local" else site.remote_folder
        return f"{folder}{slash}{name} on the {'local machine' if side == 'local' else 'remote host'}"

    def holds(self, side: str, name: str, text: str = "") -> str:
        node = self.find(side, name)
        if not isinstance(node, File):
            return f"there is no file {self.spot(side, name)}"
        return f"the file {self.spot(side, name)} has other content" if text and node.data != text else ""

    def absent(self, side: str, name: str) -> str:
        return "" if self.find(side, name) is None else f"{self.spot(side, name)} still exists"

    def has_mode(self, side: str) -> str:
        node = self.find(side, self.task.file)
        if node is not None and node.mode == self.task.mode:
            return ""
        mode = "none" if node is None else node.mode
        return f"the permissions of {self.spot(side, self.task.file)} are {mode} instead of {self.task.mode}"

    def packed(self, side: str) -> str:
        task = self.task
        node = self.find(side, task.other)
        if not isinstance(node, File):
            return f"there is no file {self.spot(side, task.other)}"
        wanted = "zip" if task.other.endswith(".zip") else "tar"
        if not isinstance(node.data, Archive) or node.data.kind != wanted:
            return f"{self.spot(side, task.other)} is not a {wanted} archive"
        inside = {path[-1]: file.data for path, file in node.data.members if path}
        lacking = [name for name in task.members if inside.get(name) != task.text_of(name)]
        return f"{lacking[0]} is not in {self.spot(side, task.other)}" if lacking else ""

    def extracted(self, side: str) -> str:
        """Each file lies in the folder or in one of its folders that was packed."""
        task = self.task
        inner = task.other if task.type == "download_extract" else task.file
        folder = self.find(side, "")
        here = {} if not isinstance(folder, Folder) else folder.entries
        below = here.get(inner)
        for name in task.members:
            found = [here.get(name), below.entries.get(name) if isinstance(below, Folder) else None]
            if not any(isinstance(node, File) and node.data == task.text_of(name) for node in found):
                return f"{name} is not in {self.spot(side, inner)} or the folder above"
        return ""

    def is_folder(self) -> str:
        task = self.task
        if task.side == "local":
            found = at_local_home(self.shell.local, task.site, task.other)
            name = f"{local_home(task.site)}/{task.other} on the local machine"
        else:
            name = f"/home/{task.site.user}/{task.other}"
            found = self.shell.remote.find(self.shell.remote.resolve(name))
            name += " on the remote host"
        return "" if isinstance(found, Folder) else f"there is no folder {name}"


def at_local_home(local: Machine, site: Site, name: str) -> Node | None:
    """What lies there in the local home."""
    return local.find(local.resolve(f"{real_home(site)}/{name}"))
