"""`deploy` and `context`: an agent from a checkpoint that lives on in a folder."""

import re

import pytest

from cod_lightning.cli import main
from cod_lightning.deployment import ContextStore

pytestmark = pytest.mark.slow

BASE = ["deploy", "--config", "smoke", "--warm_start", "null", "--torch_threads", "1", "--trainer.accelerator", "cpu"]


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "agents" / "ada"


def _deploy(state, *more: str) -> int:
    return main([*BASE, "--state", str(state), "--num_tasks", "3", *more])


def test_an_agent_begins_goes_on_and_is_looked_into(state, capsys):
    assert _deploy(state) == 0
    shown = capsys.readouterr().out
    assert "task 0:" in shown
    assert "tasks in all: 3" in shown
    assert _deploy(state) == 0
    shown = capsys.readouterr().out
    assert "3 tasks are done" in shown
    assert "task 5:" in shown
    store = ContextStore(state, create=False)
    assert store.num_solved() == 6
    assert [v.position for v in store.versions()][:2] == [None, 0]
    store.close()
    for action in ("log", "show"):
        assert main(["context", action, "--state", str(state)]) == 0
    assert "start" in capsys.readouterr().out
    assert main(["context", "revert", "--state", str(state), "--version", "0"]) == 0
    assert "version 7 is current" in capsys.readouterr().out


def test_no_task_is_solved_where_none_is_asked_for(state, capsys):
    assert _deploy(state, "--num_tasks", "0") == 0
    assert "task" not in capsys.readouterr().out
    assert _deploy(state, "--num_tasks", "1") == 0
    shown = capsys.readouterr().out
    assert "tasks in all: 1; mean reward" in shown
    assert "missing" not in shown


def test_a_folder_of_a_run_is_no_folder_of_an_agent(state, capsys):
    state.mkdir(parents=True)
    (state / "config.yaml").write_text("model: {}\n")
    assert _deploy(state) == 2
    assert f"--state is {state}; expected a folder of an agent, not of a run" in " ".join(
        capsys.readouterr().err.split()
    )


def test_another_world_or_stream_is_refused_with_what_differs(state, capsys):
    assert _deploy(state) == 0
    assert _deploy(state, "--stream", "5") == 2
    assert "stream was test/0, is test/5" in capsys.readouterr().err
    assert _deploy(state, "--data.context.init_args.on_failure", "lose") == 2
    assert "on_failure" in capsys.readouterr().err


def test_another_policy_is_refused_whether_by_its_seed_or_by_its_size(state, capsys):
    assert _deploy(state) == 0
    for other in (["--seed_everything", "7"], ["--model.policy.init_args.hidden_size", "24"]):
        assert _deploy(state, *other) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert re.search(r"policy was TinyPolicy with weights (\w{16}), is TinyPolicy with weights (?!\1)\w{16}", said)
    assert _deploy(state) == 0
    assert "tasks in all: 6" in capsys.readouterr().out


def test_a_rule_that_changes_at_a_drawn_task_is_refused_since_it_would_move_with_every_deployment(state, capsys):
    levers = '{"class_path": "cod_lightning.envs.levers.Levers", "init_args": {"protocol": "compact"}}'
    changing = ["--data.env", "cod_lightning.envs.non_stationary.NonStationary", "--data.env.init_args.world", levers]
    one_of = f'{{"a": {{"class_path": "{changing[1]}", "init_args": {{"world": {levers}}}}}}}'
    mixed = ["--data.env", "cod_lightning.envs.mixture.Mixture", "--data.env.init_args.worlds", one_of]
    for world in (changing, mixed):
        assert _deploy(state, *world) == 2
        assert "data.env.change_at is null; expected a position" in " ".join(capsys.readouterr().err.split())
    for num_solved in (3, 6):
        assert _deploy(state, *changing, "--data.env.init_args.change_at", "2") == 0
        assert f"tasks in all: {num_solved}" in capsys.readouterr().out
