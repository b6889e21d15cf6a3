"""`context` shows versions as they are, and reverts to one while no agent lives there."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cod_lightning.cli import main
from cod_lightning.deployment import ContextStore
from cod_lightning.deployment.rows import _digest
from cod_lightning.files import locked
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus
from tests.cases import each

LONG = "4. " + "and so on " * 20 + "to the end"
TEXTS = ("1. red is up\n2. blue is down", f"1. red is left\n3. be quick\n{LONG}")


@pytest.fixture
def state(tmp_path: Path) -> list[str]:
    store = ContextStore(tmp_path)
    for position, text in enumerate(TEXTS):
        for kind in (EpisodeKind.SOLVE, EpisodeKind.UPDATE):
            is_update = kind is EpisodeKind.UPDATE
            episode = Episode(
                kind=kind,
                position=position,
                status=EpisodeStatus.COMPLETED,
                reward=0.0,
                success=True,
                context_after=text if is_update else "",
            )
            store.add(f"task {position}", episode, 0.0, "{}" if is_update else None)
    store.close()
    return ["--state", str(tmp_path)]


def test_a_context_is_shown_in_its_own_lines(state: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A file that it goes to can be the first context of another agent."""
    assert main(["context", "show", *state]) == 0
    assert capsys.readouterr().out == f"{TEXTS[1]}\n"


def test_an_empty_context_is_shown(state: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["context", "show", *state, "--version", "0"]) == 0
    assert capsys.readouterr().out == "(empty)\n"


@each("created", [1e300, -1e18, float("inf")])
def test_a_version_of_a_time_that_no_calendar_has_is_refused_in_one_line(state, capsys, created) -> None:
    with closing(sqlite3.connect(Path(state[1]) / "agent.sqlite", isolation_level=None)) as db:
        number, episode, _, reason, content, _ = db.execute("SELECT * FROM contexts WHERE version = 1").fetchone()
        digest = _digest("contexts", [number, episode, created, reason, content])
        db.execute("UPDATE contexts SET created = ?, digest = ? WHERE version = 1", (created, digest))
    assert main(["context", "log", *state]) == 2
    assert "version 1 was written at" in capsys.readouterr().err


def test_an_agent_that_is_deployed_is_not_reverted_meanwhile(
    state: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with locked(Path(state[1]), "--state", "deploy"):
        assert main(["context", "revert", *state, "--version", "1"]) == 2
        assert main(["context", "show", *state]) == 0
    assert "expected a folder in which no other deploy runs" in capsys.readouterr().err
    assert main(["context", "revert", *state, "--version", "1"]) == 0
