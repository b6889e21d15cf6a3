"""Terminals, streams and folders that are not as usual: a reader that ends, another encoding, no input, few columns."""

import errno
import io
import os
import subprocess
import sys
import time

import pytest

from cod_lightning import cli
from tests.cases import each
from tests.command_line import ROOT


def started(*argv, **environment):
    """The command in a process of its own, with what is different in its environment."""
    line = [sys.executable, "-m", "cod_lightning", *argv]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=settings)


PLAY = ["play", "--env", "levers", "--policy", "oracle", "--num_tasks", "400"]


@pytest.mark.slow
@each("argv", [["--help"], PLAY])  # a pipe holds less than 400 tasks
def test_a_reader_that_ends_early_leaves_no_traceback(argv):
    with started(*argv) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


@pytest.mark.slow
def test_what_a_terminal_cannot_spell_is_shown_escaped():
    out, err = started(
        "play", "--env", "frozen_lake_easy", "--policy", "scripted", "--index", "1", PYTHONIOENCODING="ascii"
    ).communicate()
    assert b"rewards by position" in out
    assert b"\\u" in out
    assert err == b""


@each(
    ("number", "remedy"), [(errno.EACCES, "Let this user read"), (errno.EROFS, "Let this"), (errno.ENOSPC, "Make room")]
)
def test_what_the_system_refuses_is_said_in_one_line_with_a_remedy(monkeypatch, capsys, number, remedy):
    def refused(argv):
        raise OSError(number, os.strerror(number), "runs/theirs")

    monkeypatch.setattr("cod_lightning.commands.worlds.run", refused)
    capsys.readouterr()
    assert cli.main(["worlds"]) == 1
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert said.startswith(f"error: [Errno {number}]")
    assert "runs/theirs" in said
    assert remedy in said


@each("rank", ["", "two", "-1"])
def test_a_rank_that_is_no_number_is_named_before_a_library_reads_it(monkeypatch, capsys, rank):
    monkeypatch.setenv("LOCAL_RANK", rank)
    capsys.readouterr()
    assert cli.main(["fit", "--config", "smoke"]) == 2
    assert capsys.readouterr().err.startswith(f"error: LOCAL_RANK is {rank or 'empty'}; expected a whole number")


def test_a_game_ends_where_there_is_no_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    assert cli.main(["play", "--env", "levers", "--index", "0"]) == 0
    assert "Stopped." in capsys.readouterr().out


def test_typed_bytes_that_are_no_text_are_an_answer(monkeypatch, capsys):
    typed = io.TextIOWrapper(io.BytesIO(b"\xb4\xff\n" * 30), errors="surrogateescape")
    monkeypatch.setattr(sys, "stdin", typed)
    assert cli.main(["play", "--env", "levers", "--index", "0"]) == 0
    shown = capsys.readouterr().out
    assert "malformed" in shown
    assert "failed" not in shown


@each(("columns", "most"), [("40", 40), ("0", 80)])
def test_the_worlds_fit_a_narrow_terminal_and_one_that_has_no_width(monkeypatch, capsys, columns, most):
    monkeypatch.setenv("COLUMNS", columns)
    capsys.readouterr()
    assert cli.main(["worlds"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert most / 2 < max(map(len, lines)) <= most
    assert 20 < len(lines) < 400


def test_a_terminal_is_told_that_libraries_are_loading_before_they_are():
    reader, writer = os.openpty()
    line = [sys.executable, "-m", "cod_lightning", "fit", "--config", "nosuch"]
    settings = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(line, stdout=writer, stderr=writer, env=settings) as process:
        os.close(writer)
        begun = time.monotonic()
        assert os.read(reader, 1000).startswith(b"fit: loading torch and Lightning")
        assert time.monotonic() - begun < 2
        process.kill()
    os.close(reader)


def test_what_is_piped_into_a_game_is_shown_behind_its_prompts(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n2\n1 green\n\n2\n"))
    assert cli.main(["play", "--env", "levers", "--env.protocol", "natural", "--index", "0"]) == 0
    shown = capsys.readouterr().out
    assert "your answer> 1\n" in shown
    assert "notes> 1 green\nnotes> \n" in shown


@pytest.mark.parametrize("missing", ["rich", "yaml"])
def test_a_python_without_what_is_needed_is_answered_in_one_line(missing):
    code = f"import sys; sys.modules['{missing}'] = None; from cod_lightning.cli import main; main(['worlds'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"has no {missing}" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_config_that_is_not_there_is_answered_before_torch_is_imported():
    code = "import sys; from cod_lightning.cli import main; assert main(['fit', '--config', 'quickstrat']) == 2; "
    code += "assert not {'torch', 'lightning', 'transformers'} & sys.modules.keys()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Did you mean quickstart?" in done.stderr
