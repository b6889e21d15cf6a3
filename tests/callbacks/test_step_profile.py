"""A profile of a small training: what is written, when, and what is not touched by it."""

import gzip
import json
from pathlib import Path

import lightning as L
import pytest
import torch

from cod_lightning.callbacks import StepProfile, Throughput, WeightSync
from cod_lightning.datamodules.rollout import RolloutDataModule
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.models import TinyPolicy
from cod_lightning.modules.grpo import GRPOModule
from tests.small_fit import quiet_trainer
from tests.stubs import PlainContext, WordWorld


def fit(folder: Path, rollouts: int, rollouts_per_epoch: int, *extra: L.Callback) -> torch.Tensor:
    """The trained weights."""
    L.seed_everything(3, verbose=False)
    policy = TinyPolicy(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=32)
    data = RolloutDataModule(
        WordWorld(),
        PlainContext(),
        TransformersEngine(),
        pack_size=2,
        group_size=2,
        packs_per_rollout=2,
        updates_per_rollout=2,
        rollouts_per_epoch=rollouts_per_epoch,
        val_packs=2,
        max_new_tokens=3,
    )
    trainer = quiet_trainer(folder, Throughput(), WeightSync(), *extra, max_steps=2 * rollouts)
    module = GRPOModule(policy, lr=1e-3)
    trainer.fit(module, data)
    assert module.model is not None
    return torch.cat([p.detach().flatten() for p in module.model.parameters()])


@pytest.mark.slow
def test_it_leaves_a_page_and_a_trace_and_the_training_as_it_was(tmp_path, capsys):
    plain = fit(tmp_path, 6, 8)
    assert not (tmp_path / "profile").exists()
    (tmp_path / "profile").mkdir()
    for name in ("summary.md", "trace.json.gz"):
        (tmp_path / "profile" / name).symlink_to(tmp_path / "precious")
    assert torch.equal(plain, fit(tmp_path, 6, 8, StepProfile()))
    assert not (tmp_path / "precious").exists(), "links are replaced and never written through"
    page = (tmp_path / "profile" / "summary.md").read_text()
    assert "4 lifecycles" in page
    assert "`cod_lightning/engines`" in page
    assert "`aten::" in page
    assert str(tmp_path / "profile" / "summary.md") in capsys.readouterr().out
    with gzip.open(tmp_path / "profile" / "trace.json.gz") as file:
        assert json.load(file)["traceEvents"]


@pytest.mark.slow
def test_the_last_step_of_a_run_can_be_the_last_that_is_looked_at(tmp_path):
    fit(tmp_path, 5, 8, StepProfile())
    assert (tmp_path / "profile" / "summary.md").is_file()


@pytest.mark.slow
def test_steps_that_end_with_a_validation_are_left_out(tmp_path):
    looked = StepProfile()
    fit(tmp_path, 6, 4, looked)  # the fourth of the six ends an epoch
    assert looked.done
    assert looked._seen == 6


def test_a_run_that_is_too_short_says_how_long_it_takes(tmp_path):
    with pytest.warns(UserWarning, match="over after 3 steps; it takes 5"):
        fit(tmp_path, 3, 8, StepProfile())
    assert not (tmp_path / "profile").exists()
