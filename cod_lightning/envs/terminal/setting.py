"""Both machines as a task finds them."""

from cod_lightning.envs.terminal.machine import Archive, File, Machine
from cod_lightning.envs.terminal.shell import Shell
from cod_lightning.envs.terminal.tasks import TerminalTask, real_home
from cod_lightning.envs.terminal.transfer import KNOWN_HOSTS, MOUNTS, SERVER

_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"


def set_up(task: TerminalTask, max_commands: int) -> Shell:
    """A session at the local machine, files in place."""
    local, remote = _local(task), _remote(task)
    kind, _, name = task.site.quirks.route.partition(" ")
    gateway = None
    if kind == "jump":
        gateway = Machine("linux", name, "guest", ("", "home", "guest"))
        gateway.folder("/home/guest")
    shell = Shell(task.site, local, remote, gateway, max_commands)
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
