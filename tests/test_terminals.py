"""Terminals, streams and folders that are not as usual: a reader that ends, another encoding, no input, few columns, no folder."""

import io
import os
import subprocess
import sys

import pytest

from cod_lightning import cli
from tests.command_line import ROOT


def started(*argv, **environment):
    """The command in a process of its own, with what is different in its environment."""
    line = [sys.executable, "-m", "cod_lightning", *argv]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=settings)


def test_a_reader_that_ends_early_leaves_no_traceback():
    with started("--help") as process:
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


def test_a_folder_that_was_deleted_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.main(["worlds"]) == 2
    assert "current folder is " in capsys.readouterr().err


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


def test_the_worlds_fit_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    assert cli.main(["worlds"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert len(lines) < 400
