"""`play`: a person is the policy."""

import io
from collections.abc import Iterable

import pytest
from rich.console import Console

from cod_lightning.cli import main
from cod_lightning.commands.play import Game, Person, Watched
from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import Reference, TextEnv
from cod_lightning.envs.levers import Levers
from cod_lightning.types import EpisodeStatus, Split
from tests.envs.scripted_life import live

MECHANISM = HintContext(response_limit=None)


def _played(env: TextEnv, lines: Iterable[str], num_tasks: int = 2):
    console, typed = Console(file=io.StringIO(), width=100), iter(lines)

    def read(prompt: str) -> str:
        line = next(typed, None)
        if line is None:
            raise EOFError
        return line

    pack = env.sample_pack(split=Split.TEST, index=3, num_tasks=num_tasks)
    episodes = Game(env, pack, Person(console, read), MECHANISM, console).play()
    return pack, episodes, console.file.getvalue()  # type: ignore[attr-defined]


def test_a_person_solves_and_rewrites_hints_and_sees_the_rewards():
    env = Levers()
    goals = [task.spec for task in env.sample_pack(split=Split.TEST, index=3, num_tasks=2).tasks]
    codes = [spec.colours.index(spec.goal) + 1 for spec in goals]
    _, episodes, shown = _played(env, [f"Lever {codes[0]}", "lever one", "is known", "", f"Lever {codes[1]}"])
    assert [e.reward for e in episodes] == [1.0, 1.0]
    assert [e.context_before for e in episodes] == ["", "lever one\nis known"]
    assert "rewards by position" in shown
    assert shown.count("1.000") >= 4


def test_hints_are_shown_in_the_next_task_only_through_the_context_mechanism():
    _, _, shown = _played(Levers(), ["Lever 1", "Lever 2", "note", "", "Lever 1", "Lever 2"])
    assert "context for the next task" in shown


def test_an_empty_rewrite_keeps_the_old_hints():
    _, episodes, _ = _played(Levers(), [*["Lever 9", "old", ""], *["Lever 9", ""], "Lever 9"], num_tasks=3)
    assert [e.context_before for e in episodes] == ["", "old", "old"]


def test_garbage_is_an_episode_with_a_status():
    _, episodes, _ = _played(Levers(), ["\x00[bold]<answer>[/]", "", "what"])
    assert {e.status for e in episodes} == {EpisodeStatus.MALFORMED}


def test_the_end_of_the_input_ends_the_game_and_shows_what_there_is():
    _, episodes, shown = _played(Levers(), ["Lever 7"])
    assert len(episodes) == 1
    assert "Stopped." in shown
    assert "rewards by position" in shown
    assert _played(Levers(), [])[1] == []


def test_what_a_world_shows_is_never_read_as_markup():
    console = Console(file=io.StringIO(), width=100)
    env = Levers()
    pack = env.sample_pack(split=Split.TEST, index=0, num_tasks=1)
    Game(env, pack, Person(console, lambda prompt: "[red]x[/red] [/]"), MECHANISM, console).play()


def test_watching_a_reference_gives_what_the_reference_gets():
    env = Levers()
    pack = env.sample_pack(split=Split.TEST, index=3, num_tasks=4)
    oracle = env.reference(Reference.ORACLE, pack)
    console = Console(file=io.StringIO())
    episodes = Game(env, pack, Watched(console, oracle), MECHANISM, console).play()
    assert [e.reward for e in episodes] == [lived.reward for lived in live(env, pack, oracle, "natural")]


def test_a_pack_without_tasks_is_refused(capsys):
    assert main(["play", "--env", "levers", "--num_tasks", "0"]) == 2
    assert "--num_tasks is 0" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--nope", "--policy=gambler"])
def test_an_unknown_option_is_refused(option):
    with pytest.raises(SystemExit):
        main(["play", "--env", "levers", option])
