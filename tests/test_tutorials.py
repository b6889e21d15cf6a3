"""Tutorials run from top to bottom, as a reader types them; trainings are shortened."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.command_line import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
SHORT = "--trainer.max_epochs 1 --data.rollouts_per_epoch 3"
WARM_STARTS = {
    "experiment/notebook_levers": "configs/warm_start/levers_notebook.yaml",
    "examples/vending_machine/machine.yaml": "examples/vending_machine/machine_warm_start.yaml",
}
"""Config of a training -> its warm start, of which the test makes a tenth."""
GPU = "one_80gb_lora_8b"


def shortened(line: str, folder: Path) -> str:
    """The command with a short training, after a short warm start."""
    if " fit " not in line:
        return line
    assert not line.endswith("\\"), "a command over several lines would be shortened in the middle"
    line = f"{line.partition(' #')[0]} {SHORT}"
    for config, warm_start in WARM_STARTS.items():
        if config in line:
            content = yaml.safe_load((ROOT / warm_start).read_text())
            content["data"] = {**content["data"], "num_updates": 150, "num_packs": 150}
            (folder / "short.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
            line += " --warm_start short.yaml"
    return line


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
    own = Path(sys.executable).parent
    env = os.environ | {"PATH": f"{own}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    for language, block in re.findall(
        r"^```(bash|python)\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.M
    ):
        env |= dict(re.findall(r"^export (\w+)=(\S+)$", block, re.MULTILINE))  # a reader types on in one shell
        lines = [shortened(line, tmp_path) for line in block.splitlines() if GPU not in line]
        typed = [sys.executable, "-c", block] if language == "python" else ["bash", "-euc", "\n".join(lines)]
        done = subprocess.run(typed, cwd=tmp_path, env=env, input="", capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
        assert done.stdout.strip()
