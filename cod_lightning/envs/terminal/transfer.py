"""ssh, exit, scp and rsync: going to the remote host and copying to and from it."""

import re
from dataclasses import dataclass

from cod_lightning.envs.terminal.machine import (
    EXISTS,
    NO_FOLDER,
    Folder,
    Machine,
    Node,
    Path,
    ShellError,
    copied,
)
from cod_lightning.envs.terminal.options import Session, options

KNOWN_HOSTS = {
    "linux": "/etc/ssh/ssh_known_hosts",
    "mac": "/etc/ssh/ssh_known_hosts",
    "windows": "C:\\ProgramData\\ssh\\ssh_known_hosts",
}
SERVER = "/etc/ssh/sshd_config"
MOUNTS = "/etc/fstab"


@dataclass(frozen=True, slots=True)
class HostRoute:
    """How a command wants to reach a host."""

    port: str = "22"
    jump: str = ""


def ssh(session: Session, arguments: list[str]) -> str:
    """`ssh [-p PORT] [-J JUMP] [USER@]HOST [COMMAND]`."""
    words: list[str] = []
    head = list(arguments)
    while head and head[0].startswith("-"):
        words.append(head.pop(0))
        if re.fullmatch(r"-[pJoil]", words[-1]) and head:
            words.append(head.pop(0))
    _, values, _ = options(session.here, "ssh", words, "tTAqvn4", valued="pJoil")
    if not head:
        raise ShellError("usage: ssh [-J jump] [-p port] user@host", 255)
    user, _, host = head.pop(0).rpartition("@")
    machine = connect(session, user or values.get("l", ""), host, _route(values))
    if len(" ".join(head)) > 2_000:
        raise ShellError("ssh: the remote command is too long", 255)
    before = list(session.sessions)
    session.sessions.append(machine)
    machine.cwd = machine.home
    if not head:
        return ""
    result = session.run_part(" ".join(head))
    session.sessions = before
    if result.code:
        raise ShellError(result.output, result.code)
    return result.output


def exit_(session: Session, arguments: list[str]) -> str:
    """Back to the session before."""
    if not session.sessions:
        raise ShellError("exit: there is no remote session to leave")
    host = session.sessions.pop().name
    return f"Connection to {host} closed."


def connect(session: Session, user: str, host: str, route: HostRoute) -> Machine:
    """The machine at the other end, or why not."""
    site, here = session.site, session.here
    kind, _, value = site.quirks.route.partition(" ")
    ways = f"\n(hosts and ports known here: {KNOWN_HOSTS[session.local.system]})"
    if here is session.remote:
        raise ShellError("Host key verification failed.", 255)
    if route.jump and (session.gateway is None or _host(route.jump) != value or here is session.gateway):
        raise ShellError(
            f"ssh: Could not resolve hostname {_host(route.jump)[:40]}: Name or service not known{ways}", 255
        )
    if session.gateway is not None and host == value and not route.jump and here is session.local:
        return session.gateway
    if host != site.host:
        raise ShellError(f"ssh: Could not resolve hostname {host[:40]}: Name or service not known{ways}", 255)
    if kind == "jump" and not route.jump and here is not session.gateway:
        raise ShellError(f"ssh: connect to host {host} port {route.port[:8]}: Connection timed out{ways}", 255)
    if route.port != (value if kind == "port" else "22"):
        raise ShellError(f"ssh: connect to host {host} port {route.port[:8]}: Connection refused{ways}", 255)
    user = user or here.user
    if user != site.login:
        accounts = f"\nAccounts on this host: {', '.join(site.accounts)}." if site.accounts else ""
        raise ShellError(f"{user[:40]}@{host}: Permission denied (publickey).{accounts}", 255)
    return session.remote


def scp(session: Session, arguments: list[str]) -> str:
    """`scp [-r] [-O] [-P PORT] [-J JUMP] SOURCE... TARGET`, one side remote, from the local machine."""
    flags, values, places = options(session.here, "scp", arguments, "rpqCOv34", valued="PJoi")
    if len(places) < 2:
        raise ShellError("usage: scp [-r] source ... target")
    return _copy(session, "scp -O" if "O" in flags else "scp", places, _route(values), "r" in flags)


def rsync(session: Session, arguments: list[str]) -> str:
    """`rsync [-a] [-e 'ssh ...'] SOURCE... TARGET`; both sides may be here. A slash after a source folder: what is in it."""
    flags, values, places = options(session.here, "rsync", arguments, "avzrPpthlgoDn", valued="e")
    if len(places) < 2:
        raise ShellError("rsync: missing source or target (code 1)")
    words = values.get("e", "ssh").split()
    if words[:1] != ["ssh"]:
        raise ShellError(f"rsync: failed to exec {values['e'][:40]} (code 14)", 14)
    _, values, rest = options(session.here, "rsync -e ssh", words[1:], "q", valued="pJo")
    if rest:
        raise ShellError("rsync: unexpected word after ssh (code 14)", 14)
    return _copy(session, "rsync", places, _route(values), bool(flags & {"a", "r"}))


def _route(values: dict[str, str]) -> HostRoute:
    option = values.get("o", "")
    port = option.removeprefix("Port=") if option.startswith("Port=") else "22"
    jump = option.removeprefix("ProxyJump=") if option.startswith("ProxyJump=") else ""
    return HostRoute(values.get("p", values.get("P", port)), values.get("J", jump))


def _host(text: str) -> str:
    return text.rpartition("@")[2]


_REMOTE = re.compile(r"(?:([^@:/\\]+)@)?([^@:/\\]{2,}):(.*)", re.DOTALL)


def _copy(session: Session, how: str, places: list[str], route: HostRoute, recursive: bool) -> str:
    here, name = session.here, how.split()[0]
    if here is not session.local and (name == "scp" or any(_REMOTE.fullmatch(place) for place in places)):
        raise ShellError(f"Host key verification failed.\n{name}: only the local machine has a key", 255)
    ends = [_REMOTE.fullmatch(place) for place in places]
    sources, target = ends[:-1], ends[-1]
    if target is not None and any(sources):
        raise ShellError(f"{name}: copying from remote to remote is not available")
    if target is None and not any(sources):
        if name == "scp":
            raise ShellError("scp: neither side is remote (USER@HOST:PATH is expected)")
        return _place(here, here, name, places[:-1], places[-1], recursive, session)
    remote = None
    for end in ends:
        if end is not None:
            remote = connect(session, end[1] or "", end[2], route)
    assert remote is session.remote or remote is session.gateway
    if remote is not session.remote or remote is None:
        raise ShellError(f"{name}: Connection closed", 255)
    _check_service(how, session.site.quirks.transfer)
    remote.cwd = remote.home
    if target is not None:
        return _place(here, remote, name, places[:-1], target[3] or ".", recursive, session)
    if not all(sources):
        raise ShellError(f"{name}: sources on both sides")
    wanted = [found for end in sources if end for found in remote.glob(end[3]) or [end[3] or "."]]
    return _place(remote, here, name, wanted, places[-1], recursive, session)


def _check_service(how: str, service: str) -> None:
    """Raise unless the host offers this way of copying."""
    if not service or how == service:
        return
    if how == "scp":
        raise ShellError("subsystem request failed on channel 0\nscp: Connection closed", 255)
    if how == "scp -O":
        raise ShellError("bash: scp: command not found\nlost connection", 1)
    raise ShellError("bash: rsync: command not found\nrsync error: remote command not found (code 127)", 127)


def _place(
    source: Machine, target: Machine, name: str, places: list[str], where: str, recursive: bool, session: Session
) -> str:
    """Copy from places of one machine to a place of the other."""
    where = _home_of(target, where)
    last = target.resolve(where)
    into = isinstance(target.find(last), Folder)
    if (len(places) > 1 or where[-1:] in "/\\") and not into:
        raise ShellError(target.words(name, "target", where, NO_FOLDER))
    for place in places:
        place = _home_of(source, place)
        path, node = source.look(place, name, "cannot open")
        if isinstance(node, Folder) and not recursive:
            raise ShellError(f"{name}: {place[:100]}: not a regular file (folders need -r)")
        nodes: list[tuple[Path, Node]] = [((*last, path[-1]) if into else last, node)]
        if name == "rsync" and place.endswith("/") and isinstance(node, Folder):
            nodes = [((*last, entry), below) for entry, below in node.entries.items()]
            if not into:
                nodes = [(last, Folder()), *nodes]
        for to, what in nodes:
            _confined(session, target, source, name, to)
            if isinstance(target.find(to), Folder):
                raise ShellError(target.words(name, "cannot overwrite", target.spell(to), EXISTS))
            target.put(to, copied(what), name)
    return ""


def _home_of(machine: Machine, place: str) -> str:
    """The far side's `~` is put in there."""
    if not machine.windows and re.match(r"~(/|$)", place):
        return machine.spell(machine.home) + place[1:]
    return place


def _confined(session: Session, target: Machine, source: Machine, name: str, path: Path) -> None:
    kind, _, drop = session.site.quirks.place.partition(" ")
    if kind == "drop" and target is session.remote and source is not target:
        allowed = tuple(drop.split("/"))
        if path[: len(allowed)] != allowed:
            raise ShellError(
                f'{name}: dest open "{target.spell(path)}": Permission denied\n(transfers are confined, see {SERVER})'
            )


exit_.__name__ = "exit"
HANDLERS = (ssh, exit_, scp, rsync)
