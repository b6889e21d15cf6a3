"""The guide to environments of others as a reader types it, and a random checkpoint that is trained on each of them."""

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.envs.dataset import DatasetWorld, NumericMatch
from cod_lightning.evaluation.conformance import check_world
from tests.chat_server import ChatServer, said
from tests.command_line import ROOT, cod
from tests.openenv_server import Served
from tests.random_checkpoint import saved_checkpoint, trained, write_recipe
from tests.real_templates import QWEN3

GUIDE = (ROOT / "docs" / "guides" / "environments_of_others.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE)


@pytest.fixture
def written(tmp_path):
    """A folder with the file that the guide's Python writes, and its YAML files that name themselves."""
    subprocess.run([sys.executable, "-c", blocks("python")[0]], cwd=tmp_path, check=True)
    for block in blocks("yaml"):
        if named := re.match(r"# (\w+\.yaml)", block):
            (tmp_path / named[1]).write_text(block)
    return tmp_path


def test_the_questions_of_the_guide_keep_every_rule(written):
    env = DatasetWorld(str(written / "wugs.jsonl"), group="group", scorer=NumericMatch())
    assert not [one for one in check_world(env, HintContext(), num_packs=4, pack_size=4) if one.broken]


@pytest.mark.slow
def test_the_commands_of_the_guide_run(written):
    commands = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("python -m")]
    assert len(commands) >= 4
    for command in commands:
        needed = {"arc.yaml": "reasoning_gym", "mastermind": "textarena", "textworld": "textworld"}
        if any(name in command and not _installed(module) for name, module in needed.items()):
            continue
        if "fit" in command:  # minutes; its figures are those of examples/studies/foreign_worlds.py
            continue
        done = cod(*command.replace("--num_packs 20", "--num_packs 4").split()[3:], cwd=written)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return saved_checkpoint(tmp_path_factory.mktemp("qwen3"), QWEN3)


def _installed(module):
    return find_spec(module) is not None


@pytest.fixture
def numbers(tmp_path):
    """The guide's OpenEnv server, and the guide's file that names it, as it is written there but for the port."""
    server = Served(tmp_path)
    (spelled,) = (block for block in blocks("yaml") if block.startswith("# numbers.yaml"))
    (tmp_path / "numbers.yaml").write_text(spelled.replace("http://localhost:8000", server.url))
    yield tmp_path / "numbers.yaml"
    server.kill()


@pytest.mark.slow
@pytest.mark.skipif(not _installed("openenv"), reason="pip install -e '.[openenv]'")
def test_the_openenv_server_of_the_guide_is_checked_and_trained_on(numbers, checkpoint, tmp_path):
    done = cod("check", "--env", "numbers.yaml", "--num_packs", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    write_recipe(tmp_path, numbers.read_text())
    assert trained(tmp_path, checkpoint) == [(0, 0), (0, 0)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "module"),
    [("dataset", None), ("arc", "reasoning_gym"), ("textworld_safe", "textworld"), ("mastermind", "textarena")],
)
def test_a_random_checkpoint_is_trained_on_it_end_to_end_without_drift(env, module, written, checkpoint):
    if module and not _installed(module):
        pytest.skip(f"pip install -e '.[{module.replace('_', '-')}]'")
    spelled = f"# {'wugs' if env == 'dataset' else env}.yaml"
    config = next(block for block in blocks("yaml") if block.startswith(spelled))
    if module in ("reasoning_gym", "textarena"):
        write_recipe(written, config)
    else:
        (written / "theirs.yaml").write_text(config)
    assert trained(written, checkpoint) == [(0, 0), (0, 0)]


@pytest.mark.slow
def test_the_judge_of_the_guide_grades_what_no_rule_can(written, checkpoint, monkeypatch):
    (written / "theirs.yaml").write_text(next(block for block in blocks("yaml") if block.startswith("# judged.yaml")))
    (commands,) = [block for block in blocks("bash") if "rubric.txt" in block]
    subprocess.run(["bash", "-c", commands], cwd=written, check=True)
    with ChatServer(lambda content: said('{"score": 0.5, "reason": "in part"}')) as judge:
        monkeypatch.setenv("JUDGE_BASE_URL", judge.url)
        assert trained(written, checkpoint) == [(0, 0), (0, 0)]
    assert len(judge.requests) >= 8, "a task was not judged"
    asked = str(judge.requests)
    assert "however it is put" in asked
    assert "A right answer is" in asked or "could not be read" in asked
