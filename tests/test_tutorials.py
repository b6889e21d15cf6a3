"""Tutorials run from top to bottom, as a reader types them; trainings are shortened."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
SHORT = "--trainer.max_epochs 1 --data.rollouts_per_epoch 3"
GPU = "frozen_lake_8b"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def shortened(block: str) -> str:
    """The block without what needs a GPU, with short trainings."""
    lines = [line for line in block.splitlines() if GPU not in line]
    assert not any(line.endswith("\\") for line in lines), (
        "a command over several lines would be shortened in the middle"
    )
    return "\n".join(f"{line.partition(' #')[0]} {SHORT}" if " fit " in line else line for line in lines)


@pytest.mark.parametrize("page", ["tutorials/levers.md", "tutorials/two_memories.md", "guides/your_own_world.md"])
def test_a_tutorial_runs_from_top_to_bottom(page, cache, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    own = Path(sys.executable).parent
    env = os.environ | {
        "COD_LIGHTNING_CACHE": str(cache),
        "PATH": f"{own}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    for language, block in re.findall(
        r"^```(bash|python)\n(.*?)^```", (ROOT / "docs" / page).read_text(), re.DOTALL | re.M
    ):
        env |= dict(re.findall(r"^export (\w+)=(\S+)$", block, re.MULTILINE))  # a reader types on in one shell
        typed = [sys.executable, "-c", block] if language == "python" else ["bash", "-euc", shortened(block)]
        done = subprocess.run(typed, cwd=tmp_path, env=env, input="", capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
        assert done.stdout.strip()
