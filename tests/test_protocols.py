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

from cod_lightning.commands import LEARNT_NOTHING
from tests.command_line import ROOT, cod, rows
from tests.random_checkpoint import SMALL, saved_checkpoint

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


def trained(folder, checkpoint, env):
    """Token drift and failed lifecycles of two updates on the environment of these lines."""
    lines = "".join(f"    {line}\n" for line in env.splitlines() if not line.startswith("#"))
    (folder / "theirs.yaml").write_text(f"defaults:\n  - recipe: qwen3_8b\n  - _self_\ndata:\n  env:\n{lines}")
    settings = SMALL | {"model.policy.init_args.path": checkpoint, "trainer.default_root_dir": folder / "run"}
    flags = [text for key, value in settings.items() for text in (f"--{key}", str(value))]
    done = cod("fit", "--config", "theirs.yaml", "engine=TransformersEngine", *flags, cwd=folder)
    assert done.returncode in (0, LEARNT_NOTHING), done.stderr[-3000:]
    steps = [row for row in rows(folder / "run") if row["rollout/token_drift"]]
    return [(float(row["rollout/token_drift"]), float(row["rollout/num_failed"])) for row in steps]


@pytest.mark.skipif(not has("agents"), reason="pip install openai-agents, for PROTOCOLS_PYTHON")
def test_the_agent_program_of_the_guide_is_checked_and_trained_on(checkpoint, tmp_path):
    (tmp_path / "agent.py").write_text(block("agent.py"))
    subprocess.run([sys.executable, "-c", block("write_numbers.py")], cwd=tmp_path, check=True)
    env = block("program.yaml").replace("python, agent.py", f"{PYTHON}, agent.py")
    (tmp_path / "program.yaml").write_text(env)
    done = cod("check", "--env", "program.yaml", "--num_packs", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert trained(tmp_path, checkpoint, env) == [(0, 0), (0, 0)]


@pytest.mark.skipif(not has("verifiers.v1"), reason="pip install verifiers, for PROTOCOLS_PYTHON")
@pytest.mark.parametrize("renderer", ["qwen3", pytest.param("default", marks=pytest.mark.soak)])
def test_the_environment_of_verifiers_of_the_guide_is_trained_on(renderer, checkpoint, tmp_path):
    (tmp_path / "hidden_number_v1.py").write_text(block("hidden_number_v1.py"))
    env = block("verifiers.yaml").replace(".venv-verifiers/bin/python", PYTHON)
    env = env.replace("Qwen/Qwen3-8B", str(checkpoint)) + f"  num_processes: 2\n  renderer: {{name: {renderer}}}\n"
    assert trained(tmp_path, checkpoint, env) == [(0, 0), (0, 0)]


@pytest.mark.skipif(find_spec("mcp") is None, reason="pip install 'cod-lightning[mcp]'")
def test_the_mcp_server_of_the_guide_is_trained_on(checkpoint, tmp_path):
    (tmp_path / "notes_server.py").write_text(block("notes_server.py"))
    subprocess.run([sys.executable, "-c", block("write_notes.py")], cwd=tmp_path, check=True)
    env = block("notes.yaml").replace("python, notes_server.py", f"{sys.executable}, notes_server.py")
    assert trained(tmp_path, checkpoint, env) == [(0, 0), (0, 0)]
