"""The lines of `docs/guides/as_a_library.md`, with a shorter training."""

import asyncio
import re

import pytest

from cod_lightning.contexts import HintContext
from cod_lightning.datamodules import DemonstrationDataModule, RolloutDataModule
from cod_lightning.engines import TransformersEngine
from cod_lightning.envs.levers import Levers
from cod_lightning.errors import ConfigError
from cod_lightning.models import TinyPolicy
from cod_lightning.modules import GRPOModule, WarmStartModule
from tests.command_line import ROOT
from tests.small_fit import quiet_trainer

POLICY, ENGINE = TinyPolicy(num_layers=1), TransformersEngine()
PARTS = Levers(protocol="compact"), HintContext(protocol="compact")

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


@pytest.mark.filterwarnings("ignore:You passed in a `val_dataloader`")
def test_parts_that_do_not_go_together_are_refused_in_a_line(tmp_path):
    data = RolloutDataModule(*PARTS, ENGINE)
    asked = {
        "data is missing": lambda: quiet_trainer(tmp_path).fit(GRPOModule(POLICY)),
        "model is WarmStartModule": lambda: quiet_trainer(tmp_path).fit(WarmStartModule(POLICY), data),
        "data is DemonstrationDataModule": lambda: quiet_trainer(tmp_path).fit(
            GRPOModule(POLICY), DemonstrationDataModule(*PARTS, num_updates=1)
        ),
        "data.suites is empty": lambda: quiet_trainer(tmp_path).test(GRPOModule(POLICY), data),
    }
    for said, ask in asked.items():
        with pytest.raises(ConfigError, match=f"^{said}"):
            ask()


def test_a_notebook_s_running_loop_is_refused_with_the_line_that_works_there(tmp_path):
    async def cell():
        module, data = WarmStartModule(POLICY), DemonstrationDataModule(*PARTS, num_updates=1)
        with pytest.raises(ConfigError, match=re.escape("Write `await asyncio.to_thread(trainer.fit, module, data)`.")):
            quiet_trainer(tmp_path).fit(module, data)
        await asyncio.to_thread(quiet_trainer(tmp_path).fit, module, data)
        return module

    assert asyncio.run(cell()).trainer.global_step == 1
