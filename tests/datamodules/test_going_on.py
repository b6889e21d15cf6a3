"""Which updates an epoch has, also one that is cut short or ended early, and what a run goes on with."""

import copy
from functools import partial

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from cod_lightning.callbacks.checkpoints import RunCheckpoint
from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.checkpoints.checkpoint import damage, read_checkpoint
from cod_lightning.checkpoints.folder import CheckpointFolder, num_updates_of
from cod_lightning.errors import SaveFailed
from cod_lightning.methods.asymre import AsymRE
from cod_lightning.methods.attempts import Anchored, Counterfactual
from cod_lightning.methods.bandit import Bandit
from cod_lightning.methods.priority_buffer import PriorityBuffer
from cod_lightning.methods.revisits import Revisits
from cod_lightning.methods.sdpo import SDPO
from cod_lightning.methods.self_imitation import SelfImitation
from cod_lightning.methods.signal_replay import SignalReplay
from cod_lightning.methods.value_head import ValueHead
from cod_lightning.objective.mismatch import TokenTruncate
from cod_lightning.training.packs import Uniform
from tests.cases import each
from tests.small_fit import small_data, small_fit
from tests.stubs import WordWorld


class Noting(L.Callback):
    """The epoch of each update, and the updates before each validation."""

    def __init__(self):
        self.epochs, self.validated, self.rates = [], [], []

    def on_train_batch_start(self, trainer, *_):
        self.epochs.append(trainer.current_epoch)
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    def on_validation_end(self, trainer, pl_module):
        self.validated.append(trainer.global_step)


def fit(folder, ckpt_path=None, data=None, every=None, more=None, callbacks=(), **limits):
    """Of four updates an epoch."""
    noted, trainer = Noting(), {"enable_checkpointing": True} | limits
    own = (WeightSync(self_test=None), noted, RunCheckpoint(folder, every, None), *callbacks)
    return noted, small_fit(folder, *own, data=data, module=more, trainer=trainer, ckpt_path=ckpt_path).module


def assert_alike(module, other):
    for one, wanted in zip(module.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(one, wanted)


def test_one_that_is_cut_short_ends_there_every_time(tmp_path):
    noted, _ = fit(tmp_path, max_epochs=3, limit_train_batches=3)
    assert noted.epochs == [0] * 3 + [1] * 3 + [2] * 3
    assert noted.validated == [3, 6, 9]


def test_one_that_a_limit_ended_early_is_gone_on_with_and_its_validation_comes_then(tmp_path):
    whole, expected = fit(tmp_path / "whole", max_epochs=2)
    first, _ = fit(tmp_path, max_epochs=2, max_steps=3)
    last = tmp_path / "checkpoints" / "last.ckpt"
    second, _ = fit(tmp_path, ckpt_path=last, max_epochs=2, max_steps=6)
    third, module = fit(tmp_path, ckpt_path=last, max_epochs=2)
    parts = (first, second, third)
    assert [epoch for part in parts for epoch in part.epochs] == whole.epochs == [0] * 4 + [1] * 4
    assert [updates for part in parts for updates in part.validated] == whole.validated == [4, 8]
    assert_alike(module, expected)


@pytest.mark.slow
@each(("rollouts", "epochs", "validated"), [(1, [0, 1, 1], [4, 6]), (3, [0] * 3 + [1] * 6, [6, 12])])
def test_one_that_was_begun_takes_the_length_that_a_change_gives_it(rollouts, epochs, validated, tmp_path):
    fit(tmp_path, max_epochs=1, every=1)
    third = tmp_path / "checkpoints" / "update-00000003.ckpt"
    noted, _ = fit(tmp_path, third, small_data(rollouts_per_epoch=rollouts), max_epochs=2)
    assert (noted.epochs, noted.validated) == (epochs, validated)


@pytest.mark.slow
def test_a_checkpoint_comes_after_every_validation_also_within_an_epoch(tmp_path):
    noted, _ = fit(tmp_path, max_epochs=2, val_check_interval=3)
    found = CheckpointFolder(tmp_path / "checkpoints")
    assert noted.validated == [3, 7]
    assert [num_updates_of(path) for path in found.kept()] == [8, 7, 4, 3]


@pytest.mark.slow
def test_lightning_s_own_callback_keeps_the_best_by_a_metric(tmp_path):
    best = ModelCheckpoint(tmp_path / "best", monitor="val/success/position_0", mode="max")
    fit(tmp_path, max_epochs=2, callbacks=(best,))
    assert read_checkpoint(best.best_model_path).global_step in (4, 8)
    (kept,) = (tmp_path / "best").iterdir()
    assert damage(kept) is None


class HalfBroken(WordWorld):
    """In every other pack no task begins."""

    def reset(self, *, seed=None, options=None):
        if int(options["task"].id.partition(".")[0]) % 2:
            raise RuntimeError("the world is broken")
        return super().reset(seed=seed, options=options)


@pytest.mark.slow
def test_a_checkpoint_before_an_update_without_rows_is_gone_on_from(tmp_path):
    broken = partial(small_data, world=HalfBroken(), packs_per_rollout=2)
    _, expected = fit(tmp_path / "whole", data=broken(), every=1)
    before = tmp_path / "whole" / "checkpoints" / "update-00000001.ckpt"
    assert damage(before) is None
    noted, module = fit(tmp_path / "run", before, broken())
    assert noted.epochs == [0] * 3
    assert_alike(module, expected)


TOGETHER = {
    "a critic, measured updates, replay and a correction": (
        {"critic": ValueHead(lr=0.1), "mismatch": TokenTruncate()},
        {"program": Counterfactual(fraction=1.0), "replay": SelfImitation(warmup_rollouts=1), "passes_per_rollout": 2},
    ),
    "packs that come back, replaced ones and replay": (
        {"filter_packs": True, "baseline": AsymRE()},
        {"source": Revisits(back="continued"), "replay": SignalReplay(), "resample_packs": 1},
    ),
    "siblings that are compared beside attempts, shuffled, ahead": (
        {"loss": SDPO(), "scale": "batch"},
        {"program": Anchored(fraction=1.0), "shuffle_episodes": True, "max_staleness": 1, "source": Bandit()},
    ),
    "rollouts ahead in a buffer": (
        {"optimizer": "adamw_stochastic"},
        {"max_staleness": PriorityBuffer(sigma=4.0, rollouts_per_sync=2, rollouts_begun=3, versions=2)},
    ),
}


@pytest.mark.slow
@each("name", TOGETHER)
@each("world", [WordWorld, HalfBroken])
def test_what_works_together_is_gone_on_with_bit_for_bit_in_the_middle_of_a_rollout(name, world, tmp_path):
    def run(folder, ckpt_path=None):
        more, of_data = copy.deepcopy(TOGETHER[name])
        data = small_data(world=world(), max_failed_fraction=1.0, **of_data)
        return fit(tmp_path / folder, ckpt_path, data, every=1, more=more, max_epochs=2)[1]

    whole = run("whole")
    again = run("again", tmp_path / "whole" / "checkpoints" / "update-00000003.ckpt")
    assert_alike(again, whole)
    for module in (again, whole):
        assert module.num_moved or world is HalfBroken
    assert again.latest == pytest.approx(whole.latest, rel=0, abs=0, nan_ok=True)


def test_settings_of_optimizers_that_were_changed_are_those_that_a_run_goes_on_with(tmp_path):
    first, _ = fit(tmp_path, max_epochs=1, more={"warmup_updates": 8, "critic": ValueHead()})
    assert first.rates == pytest.approx([1e-2 * n / 8 for n in (1, 2, 3, 4)])
    changed = {"lr": 1e-3, "betas": (0.5, 0.6), "weight_decay": 0.1, "critic": ValueHead(lr=0.3)}
    changed["optimizer"] = "adamw_stochastic"
    last = tmp_path / "checkpoints" / "last.ckpt"
    second, module = fit(tmp_path, last, max_epochs=2, more={"warmup_updates": 8} | changed)
    assert second.rates == pytest.approx([1e-3 * n / 8 for n in (5, 6, 7, 8)])
    group = module.optimizers().param_groups[0]
    assert (group["betas"], group["weight_decay"]) == ((0.5, 0.6), 0.1)
    assert module.critic_at_work.optimizer.param_groups[0]["lr"] == 0.3


class Mean(Uniform):
    """Keeps a number as NumPy has it."""

    mean = 0.0

    def observe(self, outcomes):
        self.mean = np.mean(outcomes.credit.values.numpy())

    def state_dict(self):
        return {"means": [self.mean]}


def test_a_state_that_could_not_be_read_again_ends_the_run_at_its_first_checkpoint_and_is_named(tmp_path):
    said = r"no checkpoint could be written in .*\(RuntimeError: RolloutDataModule\.rollouts\.source\.state\.means is a list, not"
    with pytest.raises(SaveFailed, match=said):
        fit(tmp_path, data=small_data(source=Mean()))
