"""The 17 kinds of tasks: what is drawn, and which sentence names the goal."""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from cod_lightning.envs.terminal.quirks import FOLDERS, Site

SINGLE = ("upload", "download", "rename", "move", "chmod", "delete", "copy", "pack", "mkdir")
COMPOSITE = (
    "pack_upload", "download_extract", "mkdir_upload", "upload_chmod", "upload_delete_source", "pack_upload_extract",
    "download_rename", "backup_replace",
)  # fmt: skip
TYPES = (*SINGLE, *COMPOSITE)
TWO_SIDED = ("rename", "move", "chmod", "delete", "copy", "pack", "mkdir")
"""Types that may concern either machine."""
FILES = (
    "report.txt", "notes.md", "data.csv", "config.yaml", "settings.json", "index.html", "style.css", "app.py", "main.c",
    "server.log", "users.sql", "readme.txt", "todo.txt", "budget.csv", "invoice.txt", "schema.sql", "deploy.sh", "backup.sh",
    "photo.svg", "summary.md", "results.json", "plan.txt", "access.log", "query.sql", "draft.md",
)  # fmt: skip
"""25 names of files."""
MODES = ("644", "755", "600", "700", "664", "640", "444", "750")
UPLOAD_MODES = ("755", "700", "600", "444")


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminalTask:
    """One goal on two machines."""

    site: Site
    type: str
    side: str
    """local or remote, where the type leaves it open."""
    file: str
    """Also the folder that is packed, or the archive."""
    other: str
    """New name, target folder, or new folders joined by slashes."""
    members: tuple[str, ...]
    """Files in the folder or the archive."""
    mode: str
    marker: int
    """Part of all files' content."""
    decoys: tuple[str, ...]

    @property
    def content(self) -> str:
        """Of the file in question."""
        return self.text_of(self.file)

    def text_of(self, name: str, kind: str = "") -> str:
        """Content of any file of this task."""
        return f"{name} {self.marker}{kind}"


def draw_task(rng: random.Random, site: Site, kind: str) -> TerminalTask:
    """The parts of a task of that type."""
    side = rng.choice(("local", "remote")) if kind in TWO_SIDED else "local"
    if kind == "chmod" and site.system == "windows":
        side = "remote"
    names = rng.sample(FILES, 10)
    folders = [name for name in rng.sample(FOLDERS, 6) if name != site.local_folder and name not in site.remote_folder]
    file, other, members = names[0], names[1], tuple(names[2 : 4 + rng.randint(0, 2)])
    archives = ("zip",) if site.system == "windows" else ("tar", "tar.gz", "zip")
    if kind == "pack" and side == "remote":
        archives = ("tar", "tar.gz", "zip")
    ending = rng.choice(archives)
    if kind == "move":
        other = folders[0]
    elif kind in ("pack", "pack_upload", "pack_upload_extract"):
        file, other = folders[0], f"{folders[0]}.{ending}"
    elif kind == "download_extract":
        file, other = f"{folders[0]}.{ending}", folders[0]
    elif kind == "mkdir":
        other = "/".join(folders[: rng.randint(2, 4)])
    elif kind == "mkdir_upload":
        other = "/".join(folders[: rng.randint(2, 3)])
    elif kind == "backup_replace":
        other = f"{file}.bak"
    return TerminalTask(
        site=site,
        type=kind,
        side=side,
        file=file,
        other=other,
        members=members,
        mode=rng.choice(UPLOAD_MODES if kind == "upload_chmod" else MODES),
        marker=rng.randrange(10_000_000),
        decoys=tuple(names[6 : 6 + rng.randint(0, 3)]),
    )


# ---------------------------------------------------------------------- sentences

TEMPLATES = {
    "upload": "Upload the local file {local}{sep}{file} to the folder {remote} of the remote host.",
    "download": "Download the file {remote}/{file} from the remote host into the local folder {local}.",
    "rename": "On the {side} machine, rename the file {folder}{sep}{file} to {other}.",
    "move": "On the {side} machine, move the file {folder}{sep}{file} into the folder {folder}{sep}{other}.",
    "chmod": "On the {side} machine, set the permissions of {folder}{sep}{file} to {mode}.",
    "delete": "On the {side} machine, delete the file {folder}{sep}{file} and nothing else.",
    "copy": "On the {side} machine, copy the file {folder}{sep}{file} to {other} in the same folder, keeping the original.",
    "pack": "On the {side} machine, pack the folder {folder}{sep}{file} into the archive {other} beside it.",
    "mkdir": "On the {side} machine, make the folder {path} in {home}, with all folders above it.",
    "pack_upload": "Pack the local folder {local}{sep}{file} and put the archive as {other} into {remote} on the remote host.",
    "download_extract": "Download the archive {remote}/{file} from the remote host and extract all its files into the local "
    "folder {local}.",
    "mkdir_upload": "On the remote host make the new folder {path} in {remote}, and upload the local file {local}{sep}{file} "
    "into it.",
    "upload_chmod": "Upload the local file {local}{sep}{file} to {remote} on the remote host and give it the permissions {mode} "
    "there.",
    "upload_delete_source": "Upload the local file {local}{sep}{file} to {remote} on the remote host, then delete it locally.",
    "pack_upload_extract": "Bring all files of the local folder {local}{sep}{file} into {remote} on the remote host: pack them "
    "as {other}, upload that and extract it there.",
    "download_rename": "Download the file {remote}/{file} from the remote host into the local folder {local} under the new name "
    "{other}; no local file {file} may be left.",
    "backup_replace": "On the remote host keep the old {remote}/{file} as {other} in the same folder, and put the local file "
    "{local}{sep}{file} in its place.",
}


def local_home(site: Site) -> str:
    """As tasks write it."""
    return "%USERPROFILE%" if site.system == "windows" else "~"


def separator(task: TerminalTask, side: str) -> str:
    """Between the folders of a path on that side."""
    return "\\" if task.site.system == "windows" and side == "local" else "/"


def goal_text(task: TerminalTask) -> str:
    """The sentence; local paths begin at the home, remote ones are absolute."""
    site = task.site
    side = "remote" if task.type == "mkdir_upload" or task.side == "remote" else "local"
    local = f"{local_home(site)}{separator(task, 'local')}{site.local_folder}"
    parts = {
        "local": local,
        "remote": site.remote_folder,
        "folder": local if task.side == "local" else site.remote_folder,
        "home": local_home(site) if task.side == "local" else f"/home/{site.user}",
        "side": task.side,
        "sep": separator(task, task.side),
        "file": task.file,
        "other": task.other,
        "path": task.other.replace("/", separator(task, side)),
        "mode": task.mode,
    }
    return TEMPLATES[task.type].format_map(parts)


_PARTS = {"sep": r"[\\/]", **dict.fromkeys(("local", "remote", "folder", "home", "path"), r"[\w.~%/\\-]+")}


@lru_cache(maxsize=1)
def _patterns() -> dict[str, re.Pattern[str]]:
    def pattern(template: str) -> re.Pattern[str]:
        seen: set[str] = set()
        text = ""
        for part in re.split(r"(\{\w+\})", template):
            name = part[1:-1]
            if not part.startswith("{"):
                text += re.escape(part)
            else:
                letters = _PARTS.get(name, r"[\w.-]+")
                text += f"(?P={name})" if name in seen else f"(?P<{name}>{letters})"
                seen.add(name)
        return re.compile(text)

    return {kind: pattern(template) for kind, template in TEMPLATES.items()}


def read_goal(sentence: str) -> tuple[str, Mapping[str, str]]:
    """(type, parts) of a goal's sentence."""
    for kind, pattern in _patterns().items():
        if match := pattern.fullmatch(sentence):
            return kind, match.groupdict()
    raise AssertionError("the sentence is no goal")


def real_home(site: Site) -> str:
    """Where local files lie."""
    usual = {"linux": "/home/user", "mac": "/Users/user", "windows": "C:\\Users\\user"}[site.system]
    return site.quirks.home or usual
