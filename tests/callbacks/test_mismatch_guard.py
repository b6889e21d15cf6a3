"""An engine whose log-probs are off is noticed on what is trained, with numbers, and its run ends."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from msgspec import structs

from cod_lightning.callbacks import MismatchGuard, WeightSync
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.errors import EngineMismatch
from cod_lightning.methods.icepop import TokenMask
from cod_lightning.objective.mismatch import TokenTruncate
from tests.small_fit import Updates, small_fit


class BentEngine(TransformersEngine):
    """Samples as it should and tells log-probs that are off by so much, up and down in turn."""

    def __init__(self, by):
        super().__init__()
        self.by = by

    async def generate(self, request):
        said = await super().generate(request)
        off = [p + (self.by if t % 2 else -self.by) for t, p in enumerate(said.behaviour_logprobs)]
        return structs.replace(said, behaviour_logprobs=tuple(off))


@pytest.fixture
def two_syncs(monkeypatch):
    """After so many in a row a run ends."""
    monkeypatch.setattr("cod_lightning.callbacks.notes._SYNCS_IN_A_ROW", 2)


def fit(folder, engine, guard, **options):
    return small_fit(folder, WeightSync(self_test=None), guard, engine=engine, **options).updates


def test_a_true_engine_gives_figures_and_no_warning(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        values = fit(tmp_path, TransformersEngine(), MismatchGuard()).values
    for logged in values:
        assert 0 <= logged["train/mismatch_kl"] < 1e-8
        assert logged["train/mismatch_ess"] == pytest.approx(1.0)
        assert logged["train/max_logprob_gap"] >= logged["train/logprob_gap"]


def test_a_validation_within_a_rollout_is_not_taken_for_a_gap_of_the_engine(tmp_path):
    guard, trainer = MismatchGuard(stop_at=1e-5), {"max_epochs": 2, "limit_train_batches": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        updates = small_fit(tmp_path, WeightSync(), guard, lr=0.1, trainer=trainer).updates
    assert [logged["train/mismatch_kl"] < 1e-8 for logged in updates.values] == [True, True]


def test_a_gap_is_warned_of_once_and_a_larger_one_ends_the_run_counted_once_however_many_updates_log_it(
    tmp_path, two_syncs
):
    with pytest.warns(UserWarning, match="engine and training drift apart") as caught:
        fit(tmp_path, BentEngine(0.3), MismatchGuard())
    assert sum("drift apart" in str(w.message) for w in caught) == 1
    updates, guard = Updates(), MismatchGuard()
    with pytest.warns(UserWarning, match="drift apart"), pytest.raises(EngineMismatch) as error:
        small_fit(tmp_path, WeightSync(self_test=None), updates, guard, engine=BentEngine(1.0))
    assert len(updates.values) == 3, "the first update of the second rollout"
    assert "0.2 or more after 2 syncs in a row" in str(error.value)
    assert "--model.mismatch TokenMask" in str(error.value)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_rollout_of_one_update_is_looked_at_whether_the_sync_behind_it_comes_before_the_guard_or_after(
    tmp_path, is_first, two_syncs
):
    guard, sync, updates = MismatchGuard(), WeightSync(self_test=None), Updates()
    callbacks = [guard, sync] if is_first else [sync, guard]
    with pytest.warns(UserWarning, match="drift apart"), pytest.raises(EngineMismatch):
        small_fit(tmp_path, updates, *callbacks, engine=BentEngine(1.0), updates_per_rollout=1)
    assert len(updates.values) == 2


def test_an_update_without_tokens_which_logs_the_figure_of_the_one_before_is_no_further_measurement(two_syncs):
    guard, module, trainer = MismatchGuard(), SimpleNamespace(updates_since_sync=0), SimpleNamespace()

    def updated(divergence):
        trainer.callback_metrics = {"train/mismatch_kl": torch.tensor(divergence)}
        guard.on_train_batch_start(trainer, module, None, 0)  # pyright: ignore
        guard.on_train_batch_end(trainer, module, None, None, 0)  # pyright: ignore

    with pytest.warns(UserWarning, match="drift apart"):
        updated(0.7)
    updated(0.7)
    with pytest.raises(EngineMismatch):
        updated(0.8)


def test_a_correction_takes_the_weights_that_sampled_for_every_update_of_the_rollout(tmp_path):
    own = {"lr": 0.1, "module": {"mismatch": TokenTruncate()}, "rollouts_per_epoch": 1}
    recorder = fit(tmp_path, TransformersEngine(), MismatchGuard(), **own)
    for batch in recorder.batches:
        mask = batch.action_mask
        torch.testing.assert_close(batch.old_logprobs[mask], batch.behaviour_logprobs[mask], atol=1e-5, rtol=0)
        assert not batch.old_logprobs[~mask].any()
    assert recorder.values[1]["train/mismatch_kl"] < 1e-8  # of the second update, whose policy has moved on


def test_tokens_on_which_engine_and_training_disagree_are_masked(tmp_path):
    own = {"module": {"mismatch": TokenMask()}, "rollouts_per_epoch": 1}
    with pytest.warns(UserWarning, match="drift apart"):
        recorder = fit(tmp_path, BentEngine(2.0), MismatchGuard(), **own)
    assert [logged["train/mismatch_corrected"] for logged in recorder.values] == [1.0, 1.0]
    assert [logged["train/gradient_norm"] for logged in recorder.values] == [0.0, 0.0]
