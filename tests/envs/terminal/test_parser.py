"""Command lines: quotes, escapes, joints, variables, patterns."""

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.envs.terminal.machine import Machine, ShellError
from cod_lightning.envs.terminal.parser import expand, parse
from tests.cases import each


def _machine(system: str = "linux") -> Machine:
    home = ("C:", "Users", "user") if system == "windows" else ("", "home", "user")
    machine = Machine(system, "local", "user", home)
    for name in ("a.txt", "b.txt", "c.md", ".hidden", "my file.txt"):
        machine.write(f"{machine.spell(home)}/docs/{name}", "x")
    machine.cwd = (*home, "docs")
    return machine


def _words(line: str, system: str = "linux") -> list[list[str]]:
    machine = _machine(system)
    commands = parse(line, windows=system == "windows")
    return [[text for word in command.words for text in expand(word, machine, 3)] for command in commands]


@each(
    ("line", "words"),
    [
        ("ls 'a b' \"c d\"", ["ls", "a b", "c d"]),
        ("ls a\\ b", ["ls", "a b"]),
        ("ls a'b c'd", ["ls", "ab cd"]),
        ('ls "a\\"b" \'\\\'', ["ls", 'a"b', "\\"]),
        ("ls ''", ["ls", ""]),
        ("echo '$HOME' \"$HOME\" \\$HOME", ["echo", "$HOME", "/home/user", "$HOME"]),
        ("echo ${USER}x $NOTHING $?", ["echo", "userx", "3"]),
        ("ls ~ ~/docs a~ '~'", ["ls", "/home/user", "/home/user/docs", "a~", "~"]),
        ("echo 'a && b; c | d > e'", ["echo", "a && b; c | d > e"]),
    ],
)
def test_words_are_what_a_shell_makes_of_them(line, words):
    assert _words(line) == [words]


@each(
    ("line", "words"),
    [
        ('type "C:\\Users\\user\\my file.txt"', ["type", "C:\\Users\\user\\my file.txt"]),
        ("dir %USERPROFILE%\\docs %userprofile%", ["dir", "C:\\Users\\user\\docs", "C:\\Users\\user"]),
        ('dir "%USERPROFILE%" %NOTHING%', ["dir", "C:\\Users\\user", "%NOTHING%"]),
        ("del *.TXT", ["del", "a.txt", "b.txt", "my file.txt"]),
    ],
)
def test_on_windows_a_backslash_is_no_escape_and_quotes_do_not_stay(line, words):
    assert _words(line, "windows") == [words]


@each(
    ("pattern", "found"),
    [
        ("*.txt", ["a.txt", "b.txt", "my file.txt"]),
        ("?.*", ["a.txt", "b.txt", "c.md"]),
        ("[ab].txt", ["a.txt", "b.txt"]),
        ("[!a].txt", ["b.txt"]),
        ("~/do*/c.*", ["/home/user/docs/c.md"]),
        (".h*", [".hidden"]),
        ("*.zip", ["*.zip"]),
        ("'*'.txt", ["*.txt"]),
        ('"*".txt', ["*.txt"]),
        ("/h*/u*/docs/a*", ["/home/user/docs/a.txt"]),
    ],
)
def test_patterns_match_existing_paths_or_stay_as_they_are(pattern, found):
    assert _words(f"ls {pattern}") == [["ls", *found]]


def test_joints_are_told_apart():
    assert [command.joint for command in parse("a && b; c && d;")] == ["", "&&", ";", "&&"]


@each(
    ("line", "named"),
    [
        ("ls | wc", "pipes"),
        ("a || b", "pipes"),
        ("echo a > b", "redirects"),
        ("cat << EOF", "redirects"),
        ("sleep 1 &", "background"),
        ("echo $(ls)", "subshells"),
        ('echo "$(ls)"', "substitution"),
        ("echo `ls`", "substitution"),
        ("ls\npwd", "one command line"),
        ("echo 'a", "matching quote"),
        ("a && && b", "syntax error"),
        ("&& b", "syntax error"),
        ("a &&", "syntax error"),
        ("", "syntax error"),
        ("x " * 100, "too long"),
    ],
)
def test_what_is_not_available_is_rejected_with_a_message(line, named):
    with pytest.raises(ShellError) as caught:
        parse(line)
    assert named in caught.value.message
    assert caught.value.code == 2


@given(st.text(), st.booleans())
def test_any_line_is_read_or_rejected(line, windows):
    machine = _machine("windows" if windows else "linux")
    with suppress(ShellError):
        for command in parse(line, windows=windows):
            for word in command.words:
                assert all(isinstance(text, str) for text in expand(word, machine))


@each("unit", ["*/", "*a", "[", "[a-", "*/../", "?*", "'\"", "\\", "${", "a&&", "$PWD"])
def test_reading_a_long_line_takes_no_longer_than_its_length(unit):
    machine = _machine()
    for n in range(300):
        machine.write(f"/home/user/docs/{'a' * 40}{n}", "")
    began = time.process_time()
    try:
        for command in parse((unit * 1000)[:1000]):
            for word in command.words:
                expand(word, machine)
    except ShellError:
        pass
    assert time.process_time() - began < 1
