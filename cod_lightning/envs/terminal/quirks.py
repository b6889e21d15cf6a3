"""What is special about a site, and hidden: six slots, each empty where things are as usual."""

import random
import re
from dataclasses import dataclass, fields, replace

USERS = ("admin", "deploy", "user", "webmaster", "devops", "ops", "ubuntu")
SYSTEMS = ("windows", "mac", "linux")
FOLDERS = (
    "docs", "projects", "backup", "data", "reports", "scripts", "images", "config", "logs", "notes",
    "archive", "work", "shared", "assets", "build", "release", "media", "results", "drafts", "exports",
)  # fmt: skip
"""20 names of folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirks:
    """Hidden facts of a site; also what a player believes. An empty slot is the usual way, or not known."""

    transfer: str = ""
    """The only way to copy between the machines: `scp`, `rsync` or `scp -O`; usually both plain ones work."""
    route: str = ""
    """`jump NAME` or `port NUMBER`; usually straight to port 22."""
    login: str = ""
    """The account that is let in; usually the one that the task names."""
    tools: str = ""
    """What cp, mkdir, mv and rm are called with: `safe-` as in `safe-mv`, or `busybox` as in `busybox mv`."""
    place: str = ""
    """`mount PATH`: the remote folder is read-only, and writable as PATH; `drop PATH`: transfers may write only there."""
    home: str = ""
    """Where the local home folder really is; `~` leads elsewhere."""

    @property
    def found(self) -> tuple[str, ...]:
        """Names of the slots that are not empty."""
        return tuple(name for name in SLOTS if getattr(self, name))


SLOTS = tuple(field.name for field in fields(Quirks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Two machines and how they are reached: what all tasks of a pack share."""

    system: str
    """Of the local machine: linux, mac or windows."""
    host: str
    user: str
    """The remote account that the task names."""
    local_folder: str
    """In the local home."""
    remote_folder: str
    quirks: Quirks = Quirks()
    accounts: tuple[str, ...] = ()
    """Named where the account of the task is refused; the right one is among them."""

    @property
    def login(self) -> str:
        """The account that is let in."""
        return self.quirks.login or self.user


def draw_site(rng: random.Random, num_quirks: int) -> Site:
    """A site with that many quirks, each in a slot of its own."""
    user = rng.choice(USERS)
    folder = rng.choice(FOLDERS)
    site = Site(
        system=rng.choice(SYSTEMS),
        host=f"192.168.1.{rng.randint(10, 99)}",
        user=user,
        local_folder=rng.choice(FOLDERS),
        remote_folder=rng.choice((f"/home/{user}/{folder}", "/var/www/html", f"/opt/{folder}", f"/home/{user}")),
    )
    return with_quirks(site, rng, num_quirks)


def with_quirks(site: Site, rng: random.Random, num_quirks: int) -> Site:
    """The same site with other quirks."""
    slots = rng.sample(SLOTS, num_quirks)
    accounts = tuple(rng.sample([name for name in USERS if name != site.user], 3))
    login = rng.choice(accounts) if "login" in slots else ""
    pick = rng.choice
    mount = f"mount /srv/{pick(('rw', 'live', 'edit', 'stage'))}"
    drop = f"drop /home/{login or site.user}/{pick(('incoming', 'inbox', 'drop', 'transfer'))}"
    drawn = {
        "transfer": pick(("rsync", "scp -O")) if site.system != "windows" else "scp -O",
        "route": pick(
            (f"jump {pick(('bastion', 'gateway', 'relay', 'edge'))}", f"port {pick((2222, 2200, 8022, 2022))}")
        ),
        "login": login,
        "tools": pick((pick(("busybox", "toybox", "corp", "kit")), f"{pick(('safe', 'site', 'my', 'x'))}-")),
        "place": pick((mount, drop)) if site.remote_folder != f"/home/{site.user}" else drop,
        "home": f"{homes(site.system)}{pick(('user.corp', 'user.net', 'user-01', 'user_old'))}",
    }
    quirks = Quirks(**{slot: drawn[slot] for slot in slots})
    return replace(site, quirks=quirks, accounts=accounts if login else ())


def homes(system: str) -> str:
    """Where local homes usually lie, with a separator at the end."""
    return {"linux": "/home/", "mac": "/Users/", "windows": "C:\\Users\\"}[system]


_SENTENCES = {
    "transfer": "Transfers work with",
    "route": "Route to the remote host:",
    "login": "Remote account:",
    "tools": "cp, mkdir, mv, rm are called with:",
    "place": "Writing to the remote folder:",
    "home": "The real local home:",
}
_VALUES = {
    "transfer": r"rsync|scp -O|scp",
    "route": r"(?:jump [\w.-]{1,30}|port \d{1,5})",
    "login": r"\w{1,30}",
    "tools": r"\w{1,30}-?",
    "place": r"(?:mount|drop) /[\w./-]{1,60}",
    "home": r"[\w./:\\-]{1,60}",
}
_LINES = {
    slot: re.compile(rf"^- {re.escape(_SENTENCES[slot])} ({_VALUES[slot]})$", re.MULTILINE | re.ASCII) for slot in SLOTS
}


def write_facts(quirks: Quirks) -> str:
    """A line for every slot that is not empty."""
    return "\n".join(f"- {_SENTENCES[slot]} {getattr(quirks, slot)}" for slot in quirks.found)


def read_facts(text: str) -> Quirks:
    """What lines of the text say; the last one of a slot wins."""
    found = {slot: pattern.findall(text) for slot, pattern in _LINES.items()}
    return Quirks(**{slot: values[-1] for slot, values in found.items() if values})
