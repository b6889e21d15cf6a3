"""Values from hidden states: what is learned, and which rows get none."""

import copy
import math

import pytest
import torch

from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.credit.table import kind_id
from cod_lightning.methods.value_head import ValueHead
from cod_lightning.training.critics import CriticAtWork
from cod_lightning.types import EpisodeKind
from tests.credit_tables import made_batch
from tests.small_fit import small_fit


def test_values_are_those_before_the_step_and_come_near_the_returns_after_many():
    batch, hidden, known, at_work = rows()
    first = at_work.criticised(batch, known, [torch.tensor([0, 1]), torch.tensor([3])], hidden)
    mask = batch.action_mask & known[:, None]
    assert torch.equal(first.by_token[mask], batch.returns[:, None].expand_as(mask)[mask]), "less a value of 0"
    assert set(first.by_token[2].tolist()) == {0.25}, "a row without a return keeps its advantage"
    assert first.figures["train/value_error"] == pytest.approx(first.figures["train/return_square"])
    for _ in range(300):
        last = at_work.criticised(batch, known, [torch.tensor([0, 1]), torch.tensor([3])], hidden)
    assert last.figures["train/value_error"] < 0.01 * last.figures["train/return_square"]
    assert last.by_token[mask].abs().max() < 0.2


def test_a_step_does_not_depend_on_how_rows_are_put_into_micro_batches():
    one, other = [rows()[3] for _ in range(2)]
    batch, hidden, known, _ = rows()
    for at_work, parts in ((one, [[0, 1, 3]]), (other, [[3], [0], [1]])):
        at_work.criticised(batch, known, [torch.tensor(part) for part in parts], hidden)
    for a, b in zip(one.net.parameters(), other.net.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-7)
    assert not torch.equal(next(one.net.parameters()), torch.zeros(1, 8))


def test_it_goes_on_from_its_state_bit_for_bit():
    batch, hidden, known, at_work = rows()
    at_work.criticised(batch, known, [torch.tensor([0, 1, 3])], hidden)
    again = rows()[3]
    again.load_state_dict(copy.deepcopy(at_work.state_dict()))
    for one in (at_work, again):
        one.criticised(batch, known, [torch.tensor([0, 1, 3])], hidden)
    assert all(torch.equal(a, b) for a, b in zip(at_work.net.parameters(), again.net.parameters(), strict=True))


def rows():
    """Four rows, of which the third has no value; their hidden states tell rows apart. And a critic that starts from 0."""
    mask = torch.rand(4, 7, generator=torch.Generator().manual_seed(2)) < 0.6
    mask[:, 3] = True
    index = torch.arange(4)
    known = {"advantages": torch.tensor([9.0, 9.0, 0.25, 9.0]), "returns": torch.tensor([1.0, -1.0, math.nan, 0.5])}
    batch = made_batch(torch.zeros(4, 3).long(), mask, token_ids=index[:, None].expand(4, 7).clone(), **known)
    states = torch.randn(4, 7, 8, generator=torch.Generator().manual_seed(1)) * 0.1
    states[index, :, index] += 2.0
    at_work = CriticAtWork(ValueHead(lr=0.05), 8, torch.device("cpu"), seed=1)
    return batch, lambda part: states[part.token_ids[:, 0]], batch.returns.isfinite(), at_work


def test_a_single_lifecycle_of_each_pack_trains_on_what_its_tokens_were_worth(tmp_path):
    own = {"critic": ValueHead(lr=0.1)}
    updates = small_fit(tmp_path, WeightSync(), module=own, group_size=1, rollouts_per_epoch=4).updates
    assert all(figures["train/gradient_norm"] > 0 for figures in updates.values)
    assert all(batch.known.equal(batch.action_mask) for batch in updates.batches)
    last = updates.batches[-1]
    spread = [row[mask].unique() for row, mask in zip(last.token_advantages, last.action_mask, strict=True)]
    assert any(len(values) > 1 for values in spread), "tokens of a row have values of their own"
    assert updates.values[0]["train/value_error"] != updates.values[-1]["train/value_error"]


def test_tokens_of_a_kind_that_is_not_trained_are_worth_nothing_to_it(tmp_path):
    own = {"critic": ValueHead(lr=0.1), "trained_kinds": ["update"]}
    updates = small_fit(tmp_path, WeightSync(), module=own, group_size=1).updates
    for batch in updates.batches:
        trained = batch.kinds == kind_id(EpisodeKind.UPDATE)
        assert batch.known.equal(batch.action_mask & trained[:, None])


def test_shuffled_episodes_that_no_sibling_is_compared_with_are_trained_on_too(tmp_path):
    own = {"critic": ValueHead(lr=0.1), "trained_kinds": ["solve"]}
    updates = small_fit(tmp_path, WeightSync(), module=own, group_size=1, shuffle_episodes=True).updates
    assert [len(batch.episode.unique()) for batch in updates.batches] == [4] * 4
    assert all(batch.known.equal(batch.action_mask) for batch in updates.batches)
    assert all(figures["train/gradient_norm"] > 0 for figures in updates.values[2:])
