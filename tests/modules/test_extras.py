"""Attempts, passes and replaced packs inside Lightning."""

import math

import pytest
import torch

from cod_lightning.callbacks.throughput import Throughput
from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.credit.baselines import TermsAlone
from cod_lightning.methods.attempts import Anchored, Counterfactual
from cod_lightning.objective.terms import EntropyBonus
from tests.credit_tables import advantage
from tests.small_fit import small_fit
from tests.stubs import WordWorld


def fit(tmp_path, of_data, **module):
    own = {"world": WordWorld(max_turns=2), "pack_size": 3, "group_size": 3, "seed": 3} | of_data
    return small_fit(tmp_path, WeightSync(), Throughput(), module={"lr": 1e-3} | module, **own)


@pytest.mark.slow
def test_passes_train_on_the_samplers_tokens_with_one_sync_for_each_rollout(tmp_path):
    _, data, updates, *_ = fit(tmp_path, {"passes_per_rollout": 3}, final_lr_fraction=0.0, lr=1e-2)
    versions = [batch.policy_version.unique().tolist() for batch in updates.batches]
    assert len(versions) == 2 * 2 * 3
    assert all(versions[i] == versions[0] and len(versions[i]) == 1 for i in range(6))
    assert all(versions[i] == [versions[0][0] + 1] for i in range(6, 12))
    gaps = [values["train/logprob_gap"] for values in updates.values]
    assert (
        len(set(gaps[:6])) == len(set(gaps[6:])) == 1
    )  # measured in the first update after a sync, repeated until the next
    assert max(gaps) < 1e-5
    rates = [values["train/learning_rate"] for values in updates.values]
    assert rates == pytest.approx([1e-2 * (1 - done / 12) for done in range(12)])
    assert data.stream.num_packs == 8


def test_an_update_with_attempts_is_the_gradient_of_the_definition_over_all_its_rows(tmp_path):
    extras = {"program": Counterfactual(fraction=1.0, program=Anchored(attempts=3, fraction=1.0))}
    one = extras | {"rollouts_per_epoch": 1, "updates_per_rollout": 1}
    module, _, updates, _, (credit,) = fit(tmp_path, one, lr=1e-12, gradient_clip_val=None)
    (batch,) = updates.batches
    assert credit.values[~credit.table.own].abs().max() > 1e-3
    module.model.zero_grad()
    total = torch.zeros(())
    for row in range(len(batch)):
        ids = batch.token_ids[row, : batch.lengths[row]]
        logprobs = torch.log_softmax(module.model(ids[None]).logits[0], dim=-1)
        for t in batch.action_mask[row].nonzero().flatten().tolist():
            total = total - advantage(credit, batch, row) * logprobs[t - 1, ids[t]] / int(batch.action_mask.sum())
    total.backward()
    expected = math.sqrt(sum(float((p.grad**2).sum()) for p in module.model.parameters()))
    logged = updates.values[0]
    assert logged["train/gradient_norm"] == pytest.approx(expected, rel=1e-4)
    assert logged["train/loss"] == pytest.approx(float(total.detach()), rel=1e-4, abs=1e-7)
    assert logged["train/learning_rate"] == pytest.approx(1e-12)
    assert logged["rollout/num_attempts"] == 4 * 3 * 2 * (2 + 2)
    assert logged["rollout/token_drift"] == 0


def test_one_lifecycle_a_pack_is_enough_where_the_terms_of_the_loss_train_alone(tmp_path):
    own = {"baseline": TermsAlone(), "terms": [EntropyBonus(coefficient=1.0)], "lr": 1e-2}
    module, _, updates, *_ = fit(tmp_path, {"group_size": 1}, **own)
    assert all((batch.advantages == 0).all() for batch in updates.batches)
    assert module.last_update.num_rows == len(updates.batches[-1]) > 0
    first, *_, last = [values["train/entropy"] for values in updates.values]
    assert last > first
