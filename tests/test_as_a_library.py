"""The lines of `docs/guides/as_a_library.md`, with a shorter training."""

import os
import re
import subprocess
import sys

from tests.command_line import ROOT

SHORT = {
    "num_updates=600": "num_updates=20",
    "max_epochs=3": "max_epochs=1, enable_progress_bar=False, logger=False",
    "TransformersEngine())": "TransformersEngine(), rollouts_per_epoch=1, packs_per_rollout=4, group_size=2, val_packs=4)",
}


def test_the_guides_lines_train_without_the_command_line(tmp_path):
    page = (ROOT / "docs" / "guides" / "as_a_library.md").read_text()
    (lines,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for shown, short in SHORT.items():
        assert lines.count(shown) == 1, shown
        lines = lines.replace(shown, short)
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", lines], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "'val/success/position_3':" in done.stdout
    assert (tmp_path / "policies" / "levers" / "config.json").is_file()
