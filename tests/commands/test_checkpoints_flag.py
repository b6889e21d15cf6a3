"""`test` on several checkpoints and on named suites, at the moment it would begin."""

from pathlib import Path

import pytest
import torch

from cod_lightning.callbacks import Evaluation
from cod_lightning.commands.train import TrainCLI
from tests.command_line import stopped

pytestmark = pytest.mark.slow

SMALL = ["test", "--config", "smoke", "--warm_start", "null"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.ckpt", "b.ckpt"):
        torch.save({"cod_lightning": {}}, tmp_path / name)


def begun(monkeypatch, *arguments: str) -> TrainCLI:
    return stopped(monkeypatch, *SMALL, *arguments)


def by_checkpoint(found: TrainCLI) -> bool:
    return next(c.by_checkpoint for c in found.trainer.callbacks if isinstance(c, Evaluation))  # pyright: ignore


def test_the_first_checkpoint_is_tested_first_and_the_others_wait(monkeypatch) -> None:
    found = begun(monkeypatch, "--ckpt_path", "[a.ckpt,b.ckpt]")
    assert found.config.ckpt_path == "a.ckpt"
    assert found.checkpoints == ["a.ckpt", "b.ckpt"]
    assert by_checkpoint(found)


def test_one_checkpoint_gives_the_run_s_own_results(monkeypatch) -> None:
    assert not by_checkpoint(begun(monkeypatch, "--ckpt_path", "a.ckpt"))


def test_several_checkpoints_write_into_the_run_of_the_first(monkeypatch) -> None:
    folder = Path("runs/smoke-3/checkpoints")
    folder.mkdir(parents=True)
    (folder.parent / "config.yaml").write_text("")
    torch.save({"cod_lightning": {}}, folder / "last.ckpt")
    found = begun(monkeypatch, "--ckpt_path", f"[{folder / 'last.ckpt'},b.ckpt]")
    assert Path(found.trainer.default_root_dir).resolve() == folder.parent.resolve()
