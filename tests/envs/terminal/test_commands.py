"""The commands on three systems: sessions as sessions.txt has them, and that what they take is bounded."""

from pathlib import Path

from cod_lightning.envs.terminal.goals import set_up
from cod_lightning.envs.terminal.machine import MOST_NODES, Archive, File, count
from cod_lightning.envs.terminal.quirks import Quirks, Site
from cod_lightning.envs.terminal.shell import Shell
from cod_lightning.envs.terminal.tasks import TerminalTask
from tests.cases import each


def shell(system: str = "linux", **quirks: str) -> Shell:
    """At docs in the local home, with a.txt there and a folder pics of two files; the same on the host at /var/www/html."""
    site = Site(
        system=system,
        host="192.168.1.20",
        user="deploy",
        local_folder="docs",
        remote_folder="/var/www/html",
        quirks=Quirks(**quirks),
        accounts=("ops", "admin", "devops") if quirks.get("login") else (),
    )
    task = TerminalTask(
        site=site, type="mkdir", side="local", file="a.txt", other="x", members=(), mode="644", marker=1, decoys=()
    )
    made = set_up(task)
    home = made.local.spell(made.local.home)
    for machine, folder in ((made.local, f"{home}/docs"), (made.remote, "/var/www/html")):
        machine.write(f"{folder}/a.txt", f"a of {machine.name}")
        for name in ("p.svg", "q.svg"):
            machine.write(f"{folder}/pics/{name}", name)
        machine.cwd = machine.resolve(folder)
    return made


def ok(session: Shell, line: str) -> str:
    """What the line prints; it must work."""
    result = session.run(line)
    assert (result.code, result.failed) == (0, 0), result
    return result.output


def sessions():
    """Each begins with a line of the system, and of the site's quirk if it has one; then prompts, lines and what they print."""
    title, found = "", []
    for line in Path(__file__).with_name("sessions.txt").read_text().splitlines():
        if line.startswith("# "):
            title = line.removeprefix("# ")
        elif line.startswith("@ "):
            found.append([])
            yield title, line, found[-1]
        elif line:
            found[-1].append(line)


@each(("title", "begins", "lines"), sessions())
def test_a_session_goes_as_it_was_recorded(title, begins, lines):
    system, _, quirk = begins.removeprefix("@ ").partition(" ")
    session, shown = shell(system, **({quirk.partition("=")[0]: quirk.partition("=")[2]} if quirk else {})), []
    for line in (line for line in lines if not line.startswith("  ")):
        prompt = session.prompt()
        result = session.run(line.removeprefix(prompt)[1:])
        shown += [f"{prompt} {line.removeprefix(prompt)[1:]}", *(f"  {text}" for text in result.output.splitlines())]
        if result.code or result.failed:
            shown.append(f"  (exit {result.code}, {result.failed} of {result.count} failed)")
    assert shown == lines


def test_listings_stop_after_50_entries_what_is_printed_is_bounded_and_archives_nest_no_deeper_than_three():
    session = shell()
    for n in range(60):
        session.local.write(f"/home/user/many/f{n:02}", "")
    lines = ok(session, "ls ~/many").splitlines()
    assert len(lines) == 51
    assert lines[-1] == "... (10 more)"
    session = shell()
    assert len(ok(session, "echo " + "a" * 5000)) == 1000
    assert len(session.run(" ; ".join(["echo " + "a" * 900] * 8)).output) < 3100
    session = shell()
    for n in range(10):
        session.run(f"gzip -k a.txt ; mv a.txt.gz g{n}; cp g{n} a.txt")
    node = session.local.find(session.local.resolve("a.txt"))
    assert isinstance(node, File)
    assert isinstance(node.data, Archive)
    assert node.data.nesting <= 3


def test_a_disk_fills_up_and_removing_gives_the_space_back():
    session = shell()
    for n in range(200):
        session.run(f"mkdir -p d{n}/" + "/".join("abcdefgh"))
        session.run(f"cp -r d{n} e{n}")
    assert session.local.num_nodes <= MOST_NODES
    assert "No space left" in session.run("mkdir -p new/a/b/c/d/e/f/g/h/i").output
    session = shell()
    for _ in range(20):
        session.run("mkdir n; cp -r pics n; cp -r n pics/n; mv pics n2; mv n2 pics")
    assert count(session.local.root) <= MOST_NODES + 3
    session = shell()
    before = session.local.num_nodes
    ok(session, "cp -r pics more && rm -r more && mkdir -p x/y && rm -rf x && touch z && del z")
    assert session.local.num_nodes == before == count(session.local.root) - 2


def test_patterns_are_compared_with_as_many_names_in_every_line_on_every_machine():
    session = shell(route="jump bastion")
    for machine in (session.local, session.remote, session.gateway):
        session.sessions.append(machine)
        session.run(f"touch {' '.join(f'f{n}' for n in range(50))}")
        for _ in range(3):
            ok(session, f"ls {'[f]7 ' * 50}")


def test_a_mount_and_what_is_seen_through_it_cannot_be_removed():
    session = shell(place="mount /srv/live")
    session.sessions.append(session.remote)
    for path in ("/srv/live", "/srv", "/var/www", "/var"):
        for line in (f"rm -rf {path}", f"mv {path} /tmp/elsewhere"):
            assert "Device or resource busy" in session.run(line).output, line
