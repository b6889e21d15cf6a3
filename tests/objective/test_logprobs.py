"""Chunked log-probabilities of action tokens against the dense ones."""

import pytest
import torch

from cod_lightning.objective import logprobs
from cod_lightning.objective.logprobs import action_logprobs
from examples.studies.speed import bench_logprobs as bench
from tests.dense_logprobs import token_logprobs


@pytest.fixture
def case():
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 23).double()
    hidden = torch.randn(5, 9, 8, dtype=torch.float64, requires_grad=True)
    ids = torch.randint(0, 23, (5, 9))
    mask = torch.rand(5, 9) < 0.5
    mask[:, 0] = False
    return layer, hidden, ids, mask


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_chunks_give_the_dense_values_and_gradients(case, chunk):
    layer, hidden, ids, mask = case
    found, entropy = action_logprobs(hidden, layer, ids, mask, chunk=chunk)
    logits = layer(hidden)
    dense = token_logprobs(logits, ids) * mask
    torch.testing.assert_close(found, dense.float())
    weights = torch.randn_like(found)
    (a,) = torch.autograd.grad((found * weights).sum(), hidden, retain_graph=True)
    (b,) = torch.autograd.grad((dense * weights).sum(), hidden)
    torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
    p = torch.softmax(logits, -1)
    expected = torch.nn.functional.pad(-(p * p.log()).sum(-1)[:, :-1], (1, 0)) * mask
    torch.testing.assert_close(entropy, expected.float().detach())
    assert not entropy.requires_grad


def test_a_token_is_scored_by_the_position_before_it():
    logits = torch.zeros(1, 3, 4)
    logits[0, 0, 2] = 50.0  # position 0 is sure that token 2 comes next
    after_the_first = torch.tensor([[False, True, True]])
    found, _ = action_logprobs(logits, torch.nn.Identity(), torch.tensor([[1, 2, 3]]), after_the_first)
    assert found[0].tolist() == pytest.approx([0.0, 0.0, -1.3862944])


def test_the_gradient_of_a_token_with_many_children_is_the_same_to_the_last_bit_on_two_threads():
    torch.manual_seed(0)
    hidden, ids = torch.randn(1, 2500, 96, requires_grad=True), torch.randint(0, 23, (1, 2500))
    layer, mask, parent = torch.nn.Linear(96, 23), torch.ones_like(ids).bool(), torch.zeros(2500, dtype=torch.long)
    mask[0, 0] = False
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = [
            torch.autograd.grad(action_logprobs(hidden, layer, ids, mask, parent=parent)[0].sum(), hidden)[0]
            for _ in range(10)
        ]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, found[0]) for one in found)


def test_rows_without_any_action_still_have_a_backward(case):
    layer, hidden, ids, mask = case
    logprobs, entropy = action_logprobs(hidden, layer, ids, torch.zeros_like(mask))
    (gradient,) = torch.autograd.grad(logprobs.sum(), hidden)
    assert gradient.abs().sum() == 0
    assert entropy.abs().sum() == 0


def test_under_autocast_the_layer_runs_in_bfloat16_and_the_softmax_in_float32(case):
    layer, hidden, ids, mask = case
    layer, hidden = layer.float(), hidden.detach().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = layer(hidden)
        found, entropy = action_logprobs(hidden, layer, ids, mask)
    assert logits.dtype == torch.bfloat16
    expected = token_logprobs(logits.float(), ids)
    assert found.dtype == entropy.dtype == torch.float32
    torch.testing.assert_close(found, expected * mask)


def test_weights_in_bfloat16_still_give_log_probabilities_of_float32(case):
    layer, hidden, ids, mask = case
    found, entropy = action_logprobs(hidden.detach().bfloat16(), layer.bfloat16(), ids, mask)
    assert found.dtype == entropy.dtype == torch.float32
    every = torch.arange(23)
    same, rows = hidden.detach().bfloat16()[:1, :2].expand(23, -1, -1), torch.stack([every, every], dim=1)
    mass = action_logprobs(same, layer, rows, torch.tensor([[False, True]]).expand(23, -1))[0].exp()[:, 1].sum()
    assert mass.item() == pytest.approx(1.0, abs=1e-6)  # bfloat16 would be off by 1e-3


def test_the_entropy_has_a_gradient_only_if_asked(case):
    layer, hidden, ids, mask = case
    assert not action_logprobs(hidden, layer, ids, mask)[1].requires_grad
    _, entropy = action_logprobs(hidden, layer, ids, mask, entropy_gradient=True)
    (found,) = torch.autograd.grad(entropy.sum(), hidden)
    scores = torch.log_softmax(layer(hidden[:, :-1]), dim=-1)
    dense = (-(scores.exp() * scores).sum(-1) * mask[:, 1:]).sum()
    (expected,) = torch.autograd.grad(dense, hidden)
    torch.testing.assert_close(entropy.sum(), dense, check_dtype=False)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_a_token_that_cannot_be_sampled_has_no_part_in_the_entropy_or_its_gradient():
    hidden = torch.tensor([[[0.0, 0.0, -float("inf")], [0.0, 0.0, 0.0]]], requires_grad=True)
    ids, mask = torch.tensor([[0, 1]]), torch.tensor([[False, True]])
    _, entropy = action_logprobs(hidden, torch.nn.Identity(), ids, mask, entropy_gradient=True)
    entropy.sum().backward()
    assert entropy[0, 1].item() == pytest.approx(0.6931472)
    assert hidden.grad.isfinite().all()


@pytest.mark.parametrize("chunk", [1, 3, 1000])
@pytest.mark.parametrize("entropy_gradient", [False, True])
def test_recomputed_scores_give_the_gradients_of_kept_ones(case, chunk, entropy_gradient):
    layer, hidden, ids, mask = case
    weights = torch.randn(2, *ids.shape)
    found = []
    for recompute in (False, True):
        values = action_logprobs(
            hidden, layer, ids, mask, chunk=chunk, entropy_gradient=entropy_gradient, recompute=recompute
        )
        loss = sum((v * w).sum() for v, w in zip(values, weights, strict=True))
        found.append((*values, *torch.autograd.grad(loss, [hidden, *layer.parameters()])))
    for kept, recomputed in zip(*found, strict=True):
        torch.testing.assert_close(recomputed, kept, rtol=1e-6, atol=1e-6)


def test_scores_are_recomputed_where_they_are_large_and_only_there(case, monkeypatch):
    layer, hidden, ids, mask = case
    called = []
    recomputing = logprobs.checkpoint
    monkeypatch.setattr(logprobs, "checkpoint", lambda *args, **kw: called.append(1) or recomputing(*args, **kw))
    action_logprobs(hidden, layer, ids, mask)
    assert not called
    monkeypatch.setattr(logprobs, "_LARGE", 4 * 23 * int(mask.sum()))
    action_logprobs(hidden, layer, ids, mask)
    assert called
    with torch.no_grad():
        called.clear()
        action_logprobs(hidden, layer, ids, mask)
    assert not called


@pytest.mark.slow
def test_at_a_vocabulary_of_152k_gradients_are_those_of_the_dense_way():
    found = []
    for way in ("dense", "recomputed"):
        hidden, layer, ids, mask = bench.case(200)
        values = bench.logprobs_of(way, hidden, layer, ids, mask)
        found.append(torch.autograd.grad(values.sum(), [hidden, layer.weight]))
    for dense, recomputed in zip(*found, strict=True):
        torch.testing.assert_close(recomputed, dense, rtol=1e-5, atol=1e-5)


@pytest.mark.soak
def test_memory_at_4096_tokens_is_less_than_a_tenth_of_the_dense_way():
    """The dense way needs 7 GiB there, so it is measured at an eighth of the tokens; ours does not grow with them."""
    dense = 8 * bench.measure("dense", 512)["extra_gib"]
    few, more = (bench.measure("recomputed", n)["extra_gib"] for n in (512, 1024))
    print(f"dense {dense:.2f} GiB, recomputed {few:.2f} and {more:.2f} GiB")
    assert few > 0.1  # a chunk's scores and their gradient
    assert more == pytest.approx(few, rel=0.1)
    assert more <= dense / 10
