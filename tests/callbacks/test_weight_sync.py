"""Weights reach the engine before anything is sampled, and each sync is looked at."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from cod_lightning.callbacks import WeightSync
from cod_lightning.engines.self_test import SelfTest
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.errors import EngineMismatch, TooManyFailures
from cod_lightning.modules import GRPOModule
from cod_lightning.rollout.runner import RolloutRunner
from tests.small_fit import Updates, quiet_trainer, small_data, small_fit, small_policy


class ForgetfulEngine(TransformersEngine):
    """Takes the first weights and no others, and says that it has."""

    def update_weights(self, weights, policy_version):
        if self.policy_version < 0:
            super().update_weights(weights, policy_version)
        self.policy_version = policy_version


class SleepyEngine(TransformersEngine):
    """Notes its calls; serves nothing while it sleeps."""

    def __init__(self):
        super().__init__()
        self.calls, self.awake = [], True

    def _note(self, what):
        if self.calls[-1:] != [what]:
            self.calls.append(what)

    def sleep(self):
        self._note("sleep")
        self.awake = False

    def wake(self, part):
        self._note(part)
        self.awake = self.awake or part == "kv_cache"

    def update_weights(self, weights, policy_version):
        self._note("sync")
        super().update_weights(weights, policy_version)

    async def generate(self, request):
        assert self.awake
        self._note("turns")
        return await super().generate(request)


def test_a_run_that_goes_on_samples_as_the_version_that_it_had(tmp_path):
    sync = WeightSync(self_test=None)
    sync.load_state_dict({"policy_version": 3, "last_gap": None, "last_sync_s": 0.0})
    updates = small_fit(tmp_path, sync, rollouts_per_epoch=1).updates
    assert {version for batch in updates.batches for version in batch.policy_version.tolist()} == {3}


def fit(folder, engine, sync):
    return small_fit(folder, sync, engine=engine, lr=1e-1, rollouts_per_epoch=3).updates.values


def test_every_sync_is_timed_and_its_gap_and_how_far_it_moved_the_policy_are_logged(tmp_path):
    values = fit(tmp_path, TransformersEngine(), WeightSync())
    assert all(0 <= v["engine/self_test_gap"] < 1e-4 and v["time/sync_s"] > 0 for v in values)
    moved = [v.get("engine/policy_moved") for v in values]
    assert moved[0] is None
    assert all(value > 1e-3 for value in moved[1:])


def test_an_engine_that_goes_on_with_old_weights_stops_the_run(tmp_path):
    with pytest.raises(EngineMismatch, match=r"after sync 2 ForgetfulEngine .* differs by up to"):
        fit(tmp_path, ForgetfulEngine(), WeightSync())


@pytest.mark.slow
def test_without_a_self_test_nothing_is_compared(tmp_path):
    values = fit(tmp_path, ForgetfulEngine(), WeightSync(self_test=None))
    assert all("engine/self_test_gap" not in v for v in values)


class RoundingEngine(TransformersEngine):
    """Computes with weights that it rounds, and cannot be looked into."""

    def held(self):
        return {}

    def update_weights(self, weights, policy_version):
        super().update_weights(((name, tensor.bfloat16().float()) for name, tensor in weights), policy_version)


@pytest.mark.slow
def test_a_wider_tolerance_lets_an_engine_pass_that_computes_coarsely(tmp_path):
    with pytest.raises(EngineMismatch, match="it computes otherwise"):
        fit(tmp_path / "strict", RoundingEngine(), WeightSync())
    assert len(fit(tmp_path, RoundingEngine(), WeightSync(SelfTest(tolerance=0.25)))) == 6


@pytest.fixture(scope="module")
def slept(tmp_path_factory):
    """An engine that slept through a training, and its calls until then."""
    engine = SleepyEngine()
    engine.sleeps = True
    fit(tmp_path_factory.mktemp("slept"), engine, WeightSync())
    return engine, engine.calls


@pytest.mark.slow
def test_memory_that_torch_keeps_is_given_back_before_an_engine_that_slept_takes_its_own(slept, monkeypatch):
    engine, _ = slept
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    engine.calls = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: engine.calls.append("emptied"))
    trainer = SimpleNamespace(
        global_step=0,
        datamodule=SimpleNamespace(runner=RolloutRunner(engine)),
        precision_plugin=SimpleNamespace(forward_context=nullcontext),
    )
    weights = dict(engine._bound().model.state_dict())
    module = SimpleNamespace(synced_weights=lambda adapter: weights.items())
    WeightSync(None)._sync(trainer, module)
    assert engine.calls[:2] == ["emptied", "weights"]


@pytest.mark.slow
def test_an_engine_sleeps_while_training_goes_on_and_is_woken_in_two_stages(slept):
    woken = ["weights", "sync", "kv_cache", "turns"]
    assert slept[1] == [*woken, *(["sleep", *woken] * 3)], "emptied nothing, since there is no GPU"


def test_a_trainer_without_it_is_stopped_by_an_error_that_names_it(tmp_path):
    with pytest.raises(TooManyFailures, match=r"no model yet; add the callback WeightSync to the Trainer"):
        small_fit(tmp_path)


@pytest.mark.slow
def test_checkpoints_of_two_runs_with_as_many_syncs_are_each_validated_by_their_own_weights(tmp_path):
    for seed in (1, 2):
        torch.manual_seed(seed)
        trainer = quiet_trainer(tmp_path, WeightSync(), limit_val_batches=0)
        trainer.fit(GRPOModule(small_policy(), lr=1e-2), small_data(rollouts_per_epoch=1))
        trainer.save_checkpoint(tmp_path / f"{seed}.ckpt")
    module, data = GRPOModule(small_policy()), small_data()
    trainer = quiet_trainer(tmp_path, WeightSync())
    for seed in (1, 2):
        trainer.validate(module, data, ckpt_path=tmp_path / f"{seed}.ckpt", verbose=False)
        held = data.engine.held()
        assert all(
            torch.equal(held[name], weight) for name, weight in module.model.state_dict().items() if name in held
        )


@pytest.mark.parametrize("begins", ["validate", "fit"])
def test_weights_that_were_set_between_two_calls_of_the_trainer_are_played(tmp_path, begins):
    module, data, recorder = GRPOModule(small_policy(), lr=1e-9), small_data(rollouts_per_epoch=1), Updates()
    quiet_trainer(tmp_path, sync := WeightSync(), limit_val_batches=0).fit(module, data)
    with torch.no_grad():
        for weight in module.model.parameters():
            weight += 1.0
    trainer = quiet_trainer(tmp_path, sync, recorder, limit_val_batches=0 if begins == "fit" else None)
    trainer.validate(module, data, verbose=False) if begins == "validate" else trainer.fit(module, data)
    held = data.engine.held()
    assert all(torch.allclose(held[name], own, atol=1e-6) for name, own in module.model.state_dict().items())
    assert all(logged["train/mismatch_kl"] < 1e-8 for logged in recorder.values)
