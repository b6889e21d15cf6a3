"""The 21 commands, on three systems."""

import pytest

from cod_lightning.envs.terminal.goals import set_up
from cod_lightning.envs.terminal.machine import MOST_NODES, Archive, File, Folder, count
from cod_lightning.envs.terminal.quirks import Quirks, Site
from cod_lightning.envs.terminal.shell import COMMANDS, NOT_ON_WINDOWS, Shell
from cod_lightning.envs.terminal.tasks import TerminalTask


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
    made = set_up(task, 8)
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


def test_there_are_21_commands():
    assert len(COMMANDS) == 21


@pytest.mark.parametrize("system", ["linux", "mac", "windows"])
@pytest.mark.parametrize("name", COMMANDS)
def test_windows_alone_lacks_some_commands(system, name):
    output = shell(system).run(name).output
    unknown = "not recognized" in output or "command not found" in output
    assert unknown == (system == "windows" and name in NOT_ON_WINDOWS)


@pytest.mark.parametrize(
    ("system", "line", "message"),
    [
        ("linux", "nope", "bash: nope: command not found"),
        ("mac", "nope", "zsh: command not found: nope"),
        (
            "windows",
            "nope",
            "'nope' is not recognized as an internal or external command,\noperable program or batch file.",
        ),
        ("linux", "cat b", "cat: cannot open 'b': No such file or directory"),
        ("mac", "cat b", "cat: b: No such file or directory"),
        ("windows", "type b", "The system cannot find the file specified: b"),
        ("linux", "mkdir x/y", "mkdir: cannot create directory 'x/y': No such file or directory"),
        ("linux", "mkdir pics", "mkdir: cannot create directory 'pics': File exists"),
        ("linux", "rm pics", "rm: cannot remove 'pics': Is a directory"),
        ("linux", "cp pics x", "cp: -r not specified; omitting directory 'pics'"),
        ("linux", "chmod u+x a.txt", "chmod: invalid mode: 'u+x' (three octal digits are expected)"),
        ("linux", "ls -q", "ls: invalid option -- 'q'"),
        ("linux", "cp a.txt x/y", "cp: cannot create '/home/user/docs/x/y': No such file or directory"),
        ("linux", "exit", "exit: there is no remote session to leave"),
    ],
)
def test_errors_sound_like_the_systems_shell_and_have_a_code(system, line, message):
    result = shell(system).run(line)
    assert result.output == message
    assert result.code
    assert result.failed == 1


@pytest.mark.parametrize(
    "line", ["mv a.txt b.txt", "MV a.txt b.txt", "move a.txt b.txt", "ren a.txt b.txt", "rename a.txt b.txt"]
)
@pytest.mark.parametrize("system", ["linux", "windows"])
def test_aliases_and_capitals_are_the_same_command(system, line):
    session = shell(system)
    ok(session, line)
    assert ok(session, "dir") == "b.txt\npics/"


def test_the_new_name_of_ren_is_in_the_current_folder_or_wherever_its_path_says():
    session = shell("windows")
    ok(session, 'ren "%USERPROFILE%\\docs\\a.txt" "%USERPROFILE%\\docs\\b c.txt"')
    assert ok(session, 'type "b c.txt"') == "a of local"


def test_windows_paths_have_drives_backslashes_and_no_case():
    session = shell("windows")
    assert ok(session, "cd c:\\users\\USER\\Docs && cd").lower() == "c:\\users\\user\\docs"
    assert ok(session, "type C:/Users/user/docs/A.TXT") == "a of local"
    assert session.prompt().endswith(">")
    assert session.run("dir D:\\").code


def test_prompts_mimic_each_system():
    assert shell("linux").prompt() == "user@local:~/docs$"
    assert shell("mac").prompt() == "user@local ~/docs %"
    assert shell("windows").prompt() == "C:\\Users\\user\\docs>"


def test_double_ampersand_follows_exit_codes_and_not_words():
    session = shell()
    assert ok(session, "echo error: No such file or directory && echo on") == "error: No such file or directory\non"
    result = session.run("cat nothing && echo on ; echo after")
    assert result.output.endswith("after")
    assert "on\n" not in result.output
    assert (result.code, result.failed, result.count) == (0, 1, 3)
    assert session.run("rm -f nothing && echo $?").output == "0"


def test_a_line_has_a_bounded_number_of_commands_also_inside_ssh():
    session = shell()
    assert ok(session, " ; ".join(["echo a"] * 8)).count("a") == 8
    assert "too many commands" in session.run(" ; ".join(["echo a"] * 9)).output
    nested = "ssh deploy@192.168.1.20 '" + ";".join(["echo a"] * 7) + "'"
    assert ok(session, nested).count("a") == 7
    assert "too many commands" in session.run(f"{nested} ; echo b").output


def test_listings_stop_after_50_entries_and_hide_dots():
    session = shell()
    for n in range(60):
        session.local.write(f"/home/user/many/f{n:02}", "")
    session.local.write("/home/user/many/.dot", "")
    lines = ok(session, "ls ~/many").splitlines()
    assert len(lines) == 51
    assert lines[-1] == "... (10 more)"
    assert ok(session, "ls -a ~/many").splitlines()[0] == ".dot"
    assert ok(session, "ls -l").splitlines() == ["-rw-r--r-- a.txt", "drwxr-xr-x pics/"]


def test_what_is_printed_is_bounded():
    session = shell()
    assert len(ok(session, "echo " + "a" * 5000)) == 1000
    assert len(session.run(" ; ".join(["echo " + "a" * 900] * 8)).output) < 3100


def test_a_disk_fills_up_and_paths_have_a_depth():
    session = shell()
    for n in range(200):
        session.run(f"mkdir -p d{n}/" + "/".join("abcdefgh"))
        session.run(f"cp -r d{n} e{n}")
    assert session.local.num_nodes <= MOST_NODES
    assert "No space left" in session.run("mkdir -p new/a/b/c/d/e/f/g/h/i").output
    assert "too long" in shell().run("mkdir -p " + "a/" * 40).output
    assert "too long" in shell().run("mkdir " + "a" * 100).output
    session = shell()
    for _ in range(20):
        session.run("mkdir n; cp -r pics n; cp -r n pics/n; mv pics n2; mv n2 pics")
    assert count(session.local.root) <= MOST_NODES + 3


def test_removing_gives_the_space_back():
    session = shell()
    before = session.local.num_nodes
    ok(session, "cp -r pics more && rm -r more && mkdir -p x/y && rm -rf x && touch z && del z")
    assert session.local.num_nodes == before == count(session.local.root) - 2


def test_copies_and_moves_go_into_folders_and_keep_modes():
    session = shell()
    ok(session, "chmod 600 a.txt && cp a.txt pics && mv a.txt pics/b.txt && cp -r pics more")
    assert ok(session, "ls -l more").splitlines()[:2] == ["-rw------- a.txt", "-rw------- b.txt"]
    assert session.run("cp -r pics pics/inner").code
    assert session.run("mv pics pics/inner").code
    assert ok(session, "ls more") == "a.txt\nb.txt\np.svg\nq.svg"


def test_one_cannot_remove_the_ground_under_ones_feet():
    session = shell()
    for line in ("rm -rf ~", "rm -rf /", "rm -rf .", "mv ~/docs /tmp/x", "rm -rf /home"):
        assert session.run(line).code
    assert ok(session, "pwd") == "/home/user/docs"


@pytest.mark.parametrize(
    ("pack", "unpack"),
    [
        ("tar -czf p.tar.gz pics", "tar -xzf p.tar.gz -C out"),
        ("tar czf p.tar.gz pics", "tar xf p.tar.gz -C out"),
        ("tar -cf ~/docs/p.tar -C /home/user/docs pics", "cd out && tar -xvf ../p.tar"),
        ("cd / && tar -c -f ~/docs/p.tar -C ~/docs pics && cd ~/docs", "tar -x -f p.tar -C out"),
        ("zip -r p.zip pics", "unzip -o p.zip -d out"),
        ("zip -r p /home/user/docs/pics", "unzip -d out p.zip"),
    ],
)
def test_what_is_packed_comes_out_again_under_its_folders_name(pack, unpack):
    session = shell()
    ok(session, f"mkdir out && {pack} && {unpack}")
    assert ok(session, "ls ~/docs/out ~/docs/out/pics") == "~/docs/out:\npics/".replace("~", "/home/user") + (
        "\n/home/user/docs/out/pics:\np.svg\nq.svg"
    )


def test_archives_of_another_kind_are_refused_and_nesting_ends():
    session = shell()
    ok(session, "zip -r p.zip pics ; tar -cf p.tar pics")
    assert "does not look like a tar archive" in session.run("tar -xf p.zip").output
    assert "does not look like a zip archive" in session.run("unzip p.tar").output
    assert "Nothing to do" in session.run("zip q.zip pics").output
    for n in range(10):
        session.run(f"gzip -k a.txt ; mv a.txt.gz g{n}; cp g{n} a.txt")
    node = session.local.find(session.local.resolve("a.txt"))
    assert isinstance(node, File)
    assert isinstance(node.data, Archive)
    assert node.data.nesting <= 3


def test_gzip_replaces_a_file_and_gunzip_brings_it_back():
    session = shell()
    ok(session, "gzip a.txt")
    assert ok(session, "ls") == "a.txt.gz\npics/"
    assert "binary" in ok(session, "cat a.txt.gz")
    ok(session, "gunzip a.txt.gz")
    assert ok(session, "cat a.txt") == "a of local"


def test_ssh_switches_and_exit_returns():
    session = shell("windows")
    assert ok(session, "ssh deploy@192.168.1.20 && whoami && pwd") == "deploy\n/home/deploy"
    assert session.prompt() == "deploy@192.168.1.20:~$"
    assert "Connection to 192.168.1.20 closed." in ok(session, "exit && type a.txt")
    assert ok(session, 'ssh deploy@192.168.1.20 "cat /var/www/html/a.txt && pwd"') == "a of 192.168.1.20\n/home/deploy"
    assert session.prompt() == "C:\\Users\\user\\docs>"


def test_a_line_is_read_in_the_style_of_the_machine_that_it_has_come_to():
    session = shell("windows")
    ok(session, "ssh deploy@192.168.1.20")
    assert ok(session, "echo a\\ b && exit && type %USERPROFILE%\\docs\\a.txt").splitlines()[::2] == [
        "a b",
        "a of local",
    ]
    assert ok(session, "ssh deploy@192.168.1.20 && echo a\\ b ~").endswith("a b /home/deploy")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("root@192.168.1.20", "root@192.168.1.20: Permission denied (publickey)."),
        ("192.168.1.20", "user@192.168.1.20: Permission denied (publickey)."),
        ("deploy@192.168.1.21", "Could not resolve hostname 192.168.1.21"),
        ("-p 2222 deploy@192.168.1.20", "connect to host 192.168.1.20 port 2222: Connection refused"),
        ("-J bastion deploy@192.168.1.20", "Could not resolve hostname bastion"),
    ],
)
def test_host_and_account_must_be_right(target, message):
    result = shell().run(f"ssh {target}")
    assert message in result.output
    assert result.code == 255


@pytest.mark.parametrize("how", ["scp", "scp -O", "rsync -a", "rsync -avz -e ssh"])
def test_files_travel_both_ways_with_their_modes(how):
    session = shell()
    ok(session, f"chmod 640 a.txt && {how} a.txt deploy@192.168.1.20:/var/www/html/new.txt")
    ok(session, f"{how} deploy@192.168.1.20:/var/www/html/new.txt pics")
    assert ok(session, "cat pics/new.txt") == "a of local"
    assert "-rw-r----- new.txt" in ok(session, "ls -l pics")
    ok(session, f"{how} -r deploy@192.168.1.20:/var/www/html/pics far && ls far")
    ok(session, f"{how} 'deploy@192.168.1.20:/var/www/html/pics/*' .")
    assert {"p.svg", "q.svg"} <= set(ok(session, "ls").splitlines())
    ok(session, f"{how} a.txt deploy@192.168.1.20:")
    assert isinstance(session.remote.find(("", "home", "deploy", "a.txt")), File)


def test_a_slash_after_the_source_makes_rsync_copy_what_is_in_the_folder():
    session = shell()
    ok(
        session,
        "rsync -a pics/ deploy@192.168.1.20:/var/www/html/one && rsync -a pics deploy@192.168.1.20:/var/www/html/pics",
    )
    assert ok(session, "ssh deploy@192.168.1.20 ls /var/www/html/one") == "p.svg\nq.svg"
    assert ok(session, "rsync -a pics/p.svg copy.svg && cat copy.svg") == "p.svg"


@pytest.mark.parametrize(
    "line", ["scp a.txt b.txt", "scp a.txt nowhere@192.168.1.20:/tmp", "scp pics deploy@192.168.1.20:/tmp"]
)
def test_copying_can_fail(line):
    assert shell().run(line).code


def test_copying_works_from_the_local_side_only():
    session = shell()
    ok(session, "ssh deploy@192.168.1.20")
    assert "only the local machine has a key" in session.run("scp /tmp/x user@local:/tmp").output
    ok(session, "cd /var/www/html && rsync a.txt b.txt && cat b.txt")


@pytest.mark.parametrize("route", ["jump bastion", "port 2222"])
def test_a_route_concerns_ssh_scp_and_rsync_alike(route):
    session = shell(route=route)
    host = "deploy@192.168.1.20"
    for line in (f"ssh {host}", f"scp a.txt {host}:/tmp", f"rsync a.txt {host}:/tmp"):
        result = session.run(line)
        assert result.code == 255
        assert "/etc/ssh/ssh_known_hosts" in result.output
    value = route.split()[1]
    assert value in ok(session, "cat /etc/ssh/ssh_known_hosts")
    ssh, scp = {"jump bastion": ("-J bastion", "-J bastion"), "port 2222": ("-p 2222", "-P 2222")}[route]
    ok(session, f"scp {scp} a.txt {host}:/tmp/1 && rsync -e 'ssh {ssh}' a.txt {host}:/tmp/2 && ssh {ssh} {host}")
    assert ok(session, "ls /tmp") == "1\n2"


def test_one_may_also_go_to_the_jump_host_first():
    session = shell(route="jump bastion")
    ok(session, "ssh bastion && ssh deploy@192.168.1.20")
    assert session.here is session.remote
    assert ok(session, "exit && whoami").endswith("guest")
    ok(session, "exit")
    assert session.here is session.local


def test_another_account_is_let_in_and_the_error_names_some():
    session = shell(login="ops")
    assert "Accounts on this host: ops, admin, devops." in session.run("ssh deploy@192.168.1.20").output
    assert session.run("ssh admin@192.168.1.20").code
    assert ok(session, "ssh ops@192.168.1.20 whoami") == "ops"


@pytest.mark.parametrize(("prefix", "called"), [("safe-", "safe-mv"), ("busybox", "busybox mv")])
@pytest.mark.parametrize("system", ["linux", "windows"])
def test_managed_tools_answer_to_the_sites_names_only(prefix, called, system):
    session = shell(system, tools=prefix)
    refused = session.run("mv a.txt b.txt")
    where = "C:\\Tools" if system == "windows" else "/usr/local/bin"
    assert where in refused.output
    assert prefix in ok(session, f"ls {where}")
    ok(session, f"{called} a.txt b.txt")
    assert session.run("move b.txt a.txt").code
    assert session.run(f"{called.removesuffix('mv')}zip x.zip b.txt").code
    assert session.run("safe-cp b.txt c.txt" if prefix == "busybox" else "busybox cp b.txt c.txt").code


def test_a_read_only_folder_is_writable_under_another_path():
    session = shell(place="mount /srv/rw")
    host = "deploy@192.168.1.20"
    assert "Read-only file system" in session.run(f"scp a.txt {host}:/var/www/html/b.txt").output
    ok(session, f"scp a.txt {host}:/srv/rw/b.txt && ssh {host}")
    for line in ("rm a.txt", "touch x", "mkdir y", "chmod 600 a.txt", "mv a.txt /tmp", "tar -cf x.tar a.txt"):
        assert "Read-only" in session.run(f"cd /var/www/html && {line}").output
    assert "/srv/rw /var/www/html none bind,ro" in ok(session, "cat /etc/fstab")
    assert ok(session, "mv /srv/rw/a.txt /srv/rw/c.txt && ls /var/www/html") == "b.txt\nc.txt\npics/"


def test_transfers_may_be_confined_to_a_drop_folder():
    session = shell(place="drop /home/deploy/incoming")
    host = "deploy@192.168.1.20"
    refused = session.run(f"scp a.txt {host}:/var/www/html/b.txt")
    assert "Permission denied" in refused.output
    ok(session, f"scp a.txt {host}:/home/deploy/incoming/b.txt && scp {host}:/var/www/html/a.txt far.txt && ssh {host}")
    assert "/home/deploy/incoming" in ok(session, "cat /etc/ssh/sshd_config")
    ok(session, "mv ~/incoming/b.txt /var/www/html && cp /var/www/html/b.txt /var/www/html/c.txt")


@pytest.mark.parametrize("way", ["scp", "rsync", "scp -O"])
def test_only_one_way_of_copying_may_work(way):
    for line in ("scp", "rsync", "scp -O"):
        assert (shell(transfer=way).run(f"{line} a.txt deploy@192.168.1.20:/tmp/b").code == 0) == (line == way)


@pytest.mark.parametrize(
    ("system", "home", "where"),
    [
        ("linux", "/home/user.corp", "/home"),
        ("mac", "/Users/user-01", "/Users"),
        ("windows", "C:\\Users\\u2", "C:\\Users"),
    ],
)
def test_the_home_may_lie_elsewhere(system, home, where):
    session = shell(system, home=home)
    assert isinstance(session.local.find(session.local.resolve(f"{home}/docs")), Folder)
    assert session.local.spell(session.local.home) != home
    assert ok(session, f"ls {where}") == home.replace("\\", "/").rpartition("/")[2] + "/"
