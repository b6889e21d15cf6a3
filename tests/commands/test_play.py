"""`play`: a person is the policy."""

import io
import json
import os
import signal
from collections.abc import Iterable

import pytest
from rich.console import Console

from cod_lightning.cli import main
from cod_lightning.commands.play import Audience, Person, panel, play
from cod_lightning.contexts import ContextMechanism, HintContext
from cod_lightning.envs.base import Players, Reference, TextEnv, beside
from cod_lightning.envs.levers import Levers
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.terminal import Screen
from cod_lightning.types import EpisodeStatus, Split
from tests.cases import each
from tests.envs.scripted_life import live

MECHANISM = HintContext(response_limit=None)


class Flooded(Levers):
    """Fails at every step."""

    def step(self, action: str):
        raise OSError("the cellar is under water")


def _played(env: TextEnv, lines: Iterable[str], num_tasks: int = 2, mechanism: ContextMechanism = MECHANISM):
    console, typed = Console(file=io.StringIO(), width=100), iter(lines)

    def read(prompt: str) -> str:
        line = next(typed, None)
        if line is None:
            raise EOFError
        return line

    pack = env.sample_pack(split=Split.TEST, index=3, num_tasks=num_tasks)
    player = Person(env, pack, console, read)
    assert play(env, pack, player, player, mechanism) == 0
    return player.solved, console.file.getvalue()  # type: ignore[attr-defined]


def test_a_person_solves_and_rewrites_hints_and_sees_the_rewards():
    env = Levers()
    goals = [task.spec for task in env.sample_pack(split=Split.TEST, index=3, num_tasks=2).tasks]
    codes = [spec.colours.index(spec.goal) + 1 for spec in goals]
    episodes, shown = _played(env, [f"Lever {codes[0]}", "lever one", "is known", "", f"Lever {codes[1]}"])
    assert [e.reward for e in episodes] == [1.0, 1.0]
    assert [e.context_before for e in episodes] == ["", "lever one\nis known"]
    assert "rewards by position" in shown
    assert shown.count("1.000") >= 4


def test_hints_are_shown_in_the_next_task_through_the_mechanism_and_an_empty_rewrite_keeps_them():
    _, shown = _played(Levers(), ["Lever 1", "Lever 2", "note", "", "Lever 1", "Lever 2"])
    assert "context from now on" in shown
    assert "Record of the task" not in shown, "the person has seen it"
    episodes, _ = _played(Levers(), [*["Lever 9", "old", ""], *["Lever 9", ""], "Lever 9"], num_tasks=3)
    assert [e.context_before for e in episodes] == ["", "old", "old"]


def test_garbage_is_an_episode_with_a_status_and_no_markup():
    episodes, _ = _played(Levers(), ["\x00[bold]<answer>[/]", "[red]x[/red] [/]", "", "what"])
    assert {e.status for e in episodes} == {EpisodeStatus.MALFORMED}
    assert episodes[1].context_before == "[red]x[/red] [/]"


class Unplugged(Levers):
    """Has lost what it reads from."""

    def step(self, action: str):
        raise EOFError("the cellar is empty")


@each(
    ("world", "said"),
    [("Flooded", "OSError: the cellar is under water"), ("Unplugged", "EOFError: the cellar is empty")],
)
def test_a_world_that_raises_ends_the_game_with_what_it_said_and_a_code(capsys, world, said):
    assert main(["play", "--env", f"{__name__}.{world}", "--policy", "random", "--index", "0"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert f"{said}. `check` says where." in shown


def test_the_end_of_the_input_ends_the_game_and_shows_what_there_is():
    episodes, shown = _played(Levers(), ["Lever 7"])
    assert len(episodes) == 1
    assert "Stopped." in shown
    assert "Error" not in shown, "it is none"
    assert "rewards by position" in shown
    assert _played(Levers(), [])[0] == []


def test_ctrl_c_at_the_prompt_ends_the_game_at_once(monkeypatch, capsys):
    went_on, before = [], signal.getsignal(signal.SIGINT)

    def interrupted(*_):
        os.kill(os.getpid(), signal.SIGINT)
        went_on.append(True)
        return "Lever 1"

    monkeypatch.setattr("cod_lightning.commands.play._typed", interrupted)
    assert main(["play", "--env", "levers", "--index", "0"]) == 130
    assert "Stopped by SIGINT." in capsys.readouterr().err
    assert went_on == []
    assert signal.getsignal(signal.SIGINT) is before


def test_watching_a_reference_gives_what_the_reference_gets():
    env = Levers()
    pack = env.sample_pack(split=Split.TEST, index=3, num_tasks=4)
    oracle = beside(env, Players).reference(Reference.ORACLE, pack)
    audience = Audience(Console(file=io.StringIO()))
    assert play(env, pack, oracle, audience, MECHANISM) == 0
    assert [e.reward for e in audience.solved] == [lived.reward for lived in live(env, pack, oracle)]


@each("typed", ["Lever_2", "<answer>Lever_2</answer>"])
def test_an_answer_in_a_closed_vocabulary_is_typed_with_its_tags_or_without(typed):
    (episode,), shown = _played(Levers(protocol="compact"), [typed] * 2, num_tasks=1)
    assert episode.status is not EpisodeStatus.MALFORMED
    assert "2=" in shown


def test_answers_are_typed_without_tags_beside_notes_too():
    env = Levers(protocol="compact")
    goals = [task.spec for task in env.sample_pack(split=Split.TEST, index=3, num_tasks=2).tasks]
    first, second = (f"Lever_{spec.colours.index(spec.goal) + 1}" for spec in goals)
    episodes, _ = _played(env, [first, "1=red", "", second])
    assert [(one.context_before, one.reward) for one in episodes] == [("", 1.0), ("1=red", 1.0)]


def test_a_person_keeps_a_notebook():
    episodes, shown = _played(Levers(), ["Lever 1", "Lever 2", "lever 2", "", "Lever 2"], mechanism=NotebookContext())
    assert episodes[0].status is not EpisodeStatus.MALFORMED
    assert "lever 2" in shown


@pytest.mark.slow
def test_a_trained_policy_is_watched_with_its_context_beside(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ["--warm_start", "null", "--torch_threads", "1", "--data.suites", "null", "--data.val_packs", "4"]
    small += ["--data.packs_per_rollout", "4", "--data.rollouts_per_epoch", "1", "--trainer.max_epochs", "1"]
    assert main(["fit", "--config", "smoke", *small, "--trainer.default_root_dir", "run"]) == 0
    capsys.readouterr()
    argv = ["play", "--ckpt_path", "run/checkpoints/last.ckpt", "--num_tasks", "3", "--index", "2"]
    assert main(argv) == 0
    shown = capsys.readouterr().out
    assert "levers-4/test/0/2: 3 tasks" in shown
    assert all(
        part in shown for part in ("task 1: reward", "task 3: reward", "rewrites its context", "context from now on")
    )
    assert "rewards by position" in shown
    assert main(argv) == 0
    assert capsys.readouterr().out == shown
    assert main(["play", "--ckpt_path", "nowhere.ckpt"]) == 2


def _shown(argv, lines, monkeypatch, capsys):
    """What `play` prints while these lines come in."""
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["play", *argv, "--index", "3", "--num_tasks", "1"]) == 0
    return capsys.readouterr().out


SPARE = ("--env", "apps", "--env.quirks", "0", "--env.spare_calls", "20")


def test_a_person_types_a_line_of_code_and_sees_what_it_gave(monkeypatch, capsys):
    lines = ["", "for app in ('files', 'notes'): print(user.docs(app=app)[0])", "user.done()"]
    shown = _shown(SPARE, lines, monkeypatch, capsys)
    assert "notes.login(password: text)" in shown
    assert "Turn 2 of 16" in shown
    assert "Turn 3 of 16" not in shown, "an empty line costs no turn"
    assert "checks passed" in shown


def test_a_person_sees_the_tools_of_an_environment_and_types_a_call_as_json(monkeypatch, capsys):
    lines = ['{"name": "user.docs", "arguments": {"app": "notes"}}', '{"name": "user.done", "arguments": {}}']
    shown = _shown([*SPARE, "--env.actions", "tools"], lines, monkeypatch, capsys)
    assert "Ends the task, with an answer" in shown
    assert "notes.login(password: text)" in shown
    assert "completed" in shown


def test_a_person_before_compact_words_is_shown_the_option_that_has_sentences(monkeypatch, capsys):
    lines = ["Lever_1", "Lever_2"]
    assert "--env.protocol natural" in _shown(["--env", "levers"], lines, monkeypatch, capsys)
    assert "--env.protocol" not in _shown(["--env", "levers", "--env.protocol", "natural"], lines, monkeypatch, capsys)


def test_nothing_in_a_text_acts_on_the_terminal():
    hostile = json.dumps([{"id": 1, "text": "\x1b[2J[red]\r\nx"}, {"id": 2, "text": "\u202e" + "y" * 500}])
    screen = Screen(file=io.StringIO(), width=60)
    screen.print(panel("you see", f"{hostile}\n\x1b]8;;x\x07\u202e[bold]"))
    shown = screen.file.getvalue()
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "[red]" in shown
    assert "[bold]" in shown
