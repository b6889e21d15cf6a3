"""`context` shows versions as they are, and reverts to one while no agent lives there."""

from pathlib import Path

import pytest

from cod_lightning.cli import main
from cod_lightning.deployment import ContextStore
from cod_lightning.files import locked
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus

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


def test_an_agent_that_is_deployed_is_not_reverted_meanwhile(
    state: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with locked(Path(state[1]), "--state", "deploy"):
        assert main(["context", "revert", *state, "--version", "1"]) == 2
        assert main(["context", "show", *state]) == 0
    assert "expected a folder in which no other deploy runs" in capsys.readouterr().err
    assert main(["context", "revert", *state, "--version", "1"]) == 0
