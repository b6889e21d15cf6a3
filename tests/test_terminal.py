"""Whatever a world, a model, a server or a file says is shown on the terminal and never acts on it."""

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from cod_lightning import cli
from cod_lightning.callbacks.progress import Progress
from cod_lightning.errors import EngineRefused, SaveFailed
from cod_lightning.markdown import visible
from cod_lightning.terminal import CleanStream, Screen, cleaned_output
from tests.cases import each
from tests.hostile_texts import ALL, HOSTILE, RAW

ROOT = Path(__file__).parents[1]
_HOSTILE_WORLD = "tests.hostile_texts.HostileLevers"


def output(capsys, argv: list[str]) -> str:
    """All that a command prints."""
    capsys.readouterr()
    with contextlib.suppress(SystemExit):  # jsonargparse's own
        cli.main(argv)
    shown = capsys.readouterr()
    return shown.out + shown.err


@each("text", HOSTILE)
def test_a_visible_text_has_no_control_and_loses_no_letter(text):
    assert not RAW.search(visible(text))
    assert re.sub(r"[^\w]", "", visible(text)) == re.sub(r"[^\w]", "", RAW.sub("", text))
    assert visible(visible(text)) == visible(text)


def test_a_stream_shows_what_is_printed_and_keeps_the_return_of_a_progress_bar():
    file = io.StringIO()
    with cleaned_output():
        print(ALL, file=CleanStream(file))
    assert not RAW.search(file.getvalue())
    file = io.StringIO()
    file.isatty = lambda: True
    CleanStream(file).write("\r 50 %\x1b[2J\r")
    assert file.getvalue() == "\r 50 %␛[2J\n"


@each("text", HOSTILE)
def test_a_screen_keeps_its_own_colours_and_no_sequence_of_a_text(text):
    file = io.StringIO()
    screen = Screen(file=file, force_terminal=True, width=200, color_system="standard", legacy_windows=False)
    table = Table(title=text)
    table.add_column(text)
    table.add_row(text, style="red")
    for one in (text, Text(text, style="green"), Panel(text, title="t"), table, Text("x", style="link http://a.b")):
        screen.print(one)
    assert "\x1b[32m" in file.getvalue()
    assert not RAW.search(re.sub(r"\x1b\[[\d;]*m", "", file.getvalue().replace(visible(text), "")))
    assert "\x1b[8m" not in file.getvalue()


def test_a_live_display_on_a_cleaned_terminal_still_moves_its_cursor():
    file = io.StringIO()
    file.isatty = lambda: True
    before = sys.stdout
    try:
        sys.stdout = CleanStream(file)
        screen = Screen(force_terminal=True, width=80, legacy_windows=False)
        with Live("moving", console=screen, auto_refresh=False) as live:
            print(ALL)
            live.update("moved", refresh=True)
    finally:
        sys.stdout = before
    assert "\x1b[?25l" in file.getvalue()
    assert "\x1b[2K" in file.getvalue()
    for sequence in ("\x1b]", "\x9b", "\x9d", "\x07", "\x1b[2J", "\u202e"):
        assert sequence not in file.getvalue()


def test_what_the_progress_prints_is_clean():
    progress, file = Progress(), io.StringIO()
    progress.console = Screen(file=file, width=80)
    progress.print(ALL)
    assert not RAW.search(file.getvalue())
    assert "[red]markup[/]" in file.getvalue()


def test_a_hostile_world_that_is_played_is_only_shown(capsys):
    shown = output(capsys, ["play", "--env", _HOSTILE_WORLD, "--policy", "random", "--num_tasks", "2"])
    assert "rewards by position" in shown
    assert "␛]52" in shown
    assert not RAW.search(shown)


@each("argv", [[ALL], ["fit", "--config", ALL], ["play", "--env", "levers", "--policy", ALL]])
def test_what_is_refused_is_only_shown(argv, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = output(capsys, argv)
    assert "rror" in shown
    assert not RAW.search(shown)


@each("error", [EngineRefused, SaveFailed])
def test_what_an_endpoint_or_a_file_said_is_only_shown_when_it_ends_the_run(error, capsys, monkeypatch):
    def fails(*_):
        raise error(ALL)

    monkeypatch.setattr("cod_lightning.commands.fit.run", fails)
    shown = output(capsys, ["fit"])
    assert "error: " in shown
    assert not RAW.search(shown)


def test_a_traceback_is_only_shown(tmp_path):
    code = (
        "from cod_lightning.commands import fit; from cod_lightning import cli; from tests.hostile_texts import ALL\n"
    )
    code += "def fails(*_): raise RuntimeError(ALL)\nfit.run = fails\ncli.main(['fit'])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, timeout=60)
    shown = ran.stderr.decode()
    assert "RuntimeError: ␛]52" in shown
    assert not RAW.search(shown)
