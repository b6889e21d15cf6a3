"""The lines of `docs/guides/as_a_library.md`, with a shorter training."""

import re

import pytest

from tests.command_line import ROOT

SHORT = {
    "num_updates=600": "num_updates=4",
    "max_epochs=3": "max_epochs=1, enable_progress_bar=False, logger=False",
    "TransformersEngine())": "TransformersEngine(), rollouts_per_epoch=1, packs_per_rollout=4, group_size=2, val_packs=4)",
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_guides_lines_train_without_the_command_line(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "guides" / "as_a_library.md").read_text()
    (lines,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for shown, short in SHORT.items():
        assert lines.count(shown) == 1, shown
        lines = lines.replace(shown, short)
    monkeypatch.chdir(tmp_path)
    exec(lines, {"__name__": "__main__"})
    assert "'val/success/position_3':" in capsys.readouterr().out
    assert (tmp_path / "policies" / "levers" / "config.json").is_file()
