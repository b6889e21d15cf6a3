"""The guides to environments of others and to protocols as a reader types them, and a random checkpoint trained on each of them.

A program of another environment is run by the Python that PROTOCOLS_PYTHON names (else this one), where its packages are installed.
"""

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.dataset import DatasetWorld, NumericMatch
from cod_lightning.evaluation.conformance import check_world
from tests.chat_server import ChatServer, said
from tests.command_line import cod
from tests.guides import block, blocks
from tests.openenv_server import Served
from tests.random_checkpoint import saved_checkpoint, trained, write_recipe

PYTHON = os.environ.get("PROTOCOLS_PYTHON", sys.executable)


@pytest.fixture
def written(tmp_path):
    """A folder with the file that the guide's Python writes, and its YAML files that name themselves."""
    subprocess.run([sys.executable, "-c", blocks("python")[0]], cwd=tmp_path, check=True)
    for one in blocks("yaml"):
        if named := re.match(r"# (\w+\.yaml)", one):
            (tmp_path / named[1]).write_text(one)
    return tmp_path


def test_the_questions_of_the_guide_keep_every_rule(written):
    env = DatasetWorld(str(written / "wugs.jsonl"), group="group", scorer=NumericMatch())
    assert not [one for one in check_world(env, HintContext(), num_packs=4, pack_size=4) if one.broken]


def run(*command, cwd):
    done = cod(*command, cwd=cwd)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


@pytest.mark.slow
def test_the_commands_of_the_guide_run(written):
    commands = [line for one in blocks("bash") for line in one.splitlines() if line.startswith("python -m")]
    assert len(commands) >= 4
    for command in commands:
        needed = {"arc.yaml": "reasoning_gym", "mastermind": "textarena", "textworld": "textworld"}
        if any(name in command and find_spec(module) is None for name, module in needed.items()):
            continue
        if "fit" not in command:  # minutes; its figures are those of examples/studies/foreign_worlds.py
            run(*re.sub(r"--num_packs \d+", "--num_packs 3", command).split()[3:], cwd=written)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return saved_checkpoint(tmp_path_factory.mktemp("qwen3"))


@contextmanager
def as_it_is(folder, config, checkpoint):
    yield config


@contextmanager
def served(folder, config, checkpoint):
    server = Served(folder)
    try:
        yield config.replace("http://localhost:8000", server.url)
    finally:
        server.kill()


@contextmanager
def of_a_program(folder, config, checkpoint):
    (folder / "agent.py").write_text(block("agent.py"))
    subprocess.run([sys.executable, "-c", block("write_numbers.py")], cwd=folder, check=True)
    yield config.replace("python, agent.py", f"{PYTHON}, agent.py")


@contextmanager
def of_verifiers(folder, config, checkpoint):
    (folder / "hidden_number_v1.py").write_text(block("hidden_number_v1.py"))
    config = config.replace(".venv-verifiers/bin/python", PYTHON).replace("Qwen/Qwen3-8B", str(checkpoint))
    yield config + "  num_processes: 2\n  renderer: {name: qwen3}\n"


@contextmanager
def plainly_rendered(folder, config, checkpoint):
    with of_verifiers(folder, config, checkpoint) as found:
        yield found.replace("{name: qwen3}", "{name: default}")


@contextmanager
def of_mcp(folder, config, checkpoint):
    (folder / "notes_server.py").write_text(block("notes_server.py"))
    subprocess.run([sys.executable, "-c", block("write_notes.py")], cwd=folder, check=True)
    yield config.replace("python, notes_server.py", f"{sys.executable}, notes_server.py")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "module", "prepared"),
    [
        ("arc.yaml", "reasoning_gym", as_it_is),
        ("textworld_safe.yaml", "textworld", as_it_is),
        ("mastermind.yaml", "textarena", as_it_is),
        ("numbers.yaml", "openenv", served),
        ("notes.yaml", "mcp", of_mcp),
        ("program.yaml", "agents", of_a_program),
        ("verifiers.yaml", "verifiers.v1", of_verifiers),
        pytest.param("verifiers.yaml", "verifiers.v1", plainly_rendered, marks=pytest.mark.soak),
    ],
)
def test_a_random_checkpoint_is_trained_on_it_end_to_end_without_drift(name, module, prepared, checkpoint, tmp_path):
    if prepared in (of_a_program, of_verifiers, plainly_rendered):
        found = not subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode
    else:
        found = find_spec(module)
    if not found:
        pytest.skip(f"pip install what has {module}, for the programs for PROTOCOLS_PYTHON")
    with prepared(tmp_path, block(name), checkpoint) as config:
        if prepared in (served, of_a_program):
            (tmp_path / name).write_text(config)
            run("check", "--env", name, "--num_packs", "2", cwd=tmp_path)
        if "defaults:" in config:
            (tmp_path / "theirs.yaml").write_text(config)
        else:
            write_recipe(tmp_path, config)
        assert trained(tmp_path, checkpoint) == [(0, 0), (0, 0)]


@pytest.mark.slow
def test_the_judge_of_the_guide_grades_what_no_rule_can_and_trains_without_drift(written, checkpoint, monkeypatch):
    (written / "theirs.yaml").write_text(block("judged.yaml"))
    (commands,) = [one for one in blocks("bash") if "rubric.txt" in one]
    subprocess.run(["bash", "-c", commands], cwd=written, check=True)
    with ChatServer(lambda content: said('{"score": 0.5, "reason": "in part"}')) as judge:
        monkeypatch.setenv("JUDGE_BASE_URL", judge.url)
        assert trained(written, checkpoint) == [(0, 0), (0, 0)]
    assert len(judge.requests) >= 8, "a task was not judged"
    asked = str(judge.requests)
    assert "however it is put" in asked
    assert "A right answer is" in asked or "could not be read" in asked
