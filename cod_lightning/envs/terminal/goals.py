"""When a task's goal is reached, and if not, what is wrong."""

from dataclasses import dataclass

from cod_lightning.envs.terminal.machine import Archive, File, Folder, Machine, Node
from cod_lightning.envs.terminal.quirks import Site
from cod_lightning.envs.terminal.shell import Shell
from cod_lightning.envs.terminal.tasks import TerminalTask, local_home, real_home, separator


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
                return self.absent(side, file) or next(filter(None, (self.holds(side, d) for d in task.decoys)), "")
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
