"""The guide to environments by protocol as a reader types it, and a random checkpoint that is trained on each of them.

A program of another environment is run by the Python that PROTOCOLS_PYTHON names (else this one), where its packages are installed.
"""

import os
import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec

import pytest

from tests.command_line import ROOT, cod
from tests.random_checkpoint import saved_checkpoint, trained, write_recipe

GUIDE = (ROOT / "docs" / "guides" / "protocols.md").read_text()
PYTHON = os.environ.get("PROTOCOLS_PYTHON", sys.executable)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def block(name):
    """A program of the guide, which is a file, or the block of YAML that begins with this comment."""
    if name.endswith(".py"):
        assert f'--8<-- "examples/protocols/{name}"' in GUIDE
        return (ROOT / "examples" / "protocols" / name).read_text()
    (found,) = re.findall(rf"^```\w+\n(# {re.escape(name)}\n.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)
    return found


@cache
def has(*modules):
    """Whether the programs' Python has these."""
    return subprocess.run([PYTHON, "-c", f"import {', '.join(modules)}"], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return saved_checkpoint(tmp_path_factory.mktemp("qwen3"))


def trained_on(env, folder, checkpoint):
    write_recipe(folder, env)
    return trained(folder, checkpoint)


@pytest.mark.skipif(not has("agents"), reason="pip install openai-agents, for PROTOCOLS_PYTHON")
def test_the_agent_program_of_the_guide_is_checked_and_trained_on(checkpoint, tmp_path):
    (tmp_path / "agent.py").write_text(block("agent.py"))
    subprocess.run([sys.executable, "-c", block("write_numbers.py")], cwd=tmp_path, check=True)
    env = block("program.yaml").replace("python, agent.py", f"{PYTHON}, agent.py")
    (tmp_path / "program.yaml").write_text(env)
    done = cod("check", "--env", "program.yaml", "--num_packs", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert trained_on(env, tmp_path, checkpoint) == [(0, 0), (0, 0)]


@pytest.mark.skipif(not has("verifiers.v1"), reason="pip install verifiers, for PROTOCOLS_PYTHON")
@pytest.mark.parametrize("renderer", ["qwen3", pytest.param("default", marks=pytest.mark.soak)])
def test_the_environment_of_verifiers_of_the_guide_is_trained_on(renderer, checkpoint, tmp_path):
    (tmp_path / "hidden_number_v1.py").write_text(block("hidden_number_v1.py"))
    env = block("verifiers.yaml").replace(".venv-verifiers/bin/python", PYTHON)
    env = env.replace("Qwen/Qwen3-8B", str(checkpoint)) + f"  num_processes: 2\n  renderer: {{name: {renderer}}}\n"
    assert trained_on(env, tmp_path, checkpoint) == [(0, 0), (0, 0)]


@pytest.mark.skipif(find_spec("mcp") is None, reason="pip install -e '.[mcp]'")
def test_the_mcp_server_of_the_guide_is_trained_on(checkpoint, tmp_path):
    (tmp_path / "notes_server.py").write_text(block("notes_server.py"))
    subprocess.run([sys.executable, "-c", block("write_notes.py")], cwd=tmp_path, check=True)
    env = block("notes.yaml").replace("python, notes_server.py", f"{sys.executable}, notes_server.py")
    assert trained_on(env, tmp_path, checkpoint) == [(0, 0), (0, 0)]
