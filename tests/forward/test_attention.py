"""Attention written out and query heads folded over shared keys and values: the same numbers as torch's attention gives."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from cod_lightning.forward import attention
from cod_lightning.forward.attention import grouped_attention, use_grouped_attention
from tests.cases import each
from tests.forward.small import SMALL


def _module(groups: int) -> nn.Module:
    module = nn.Module()
    module.num_key_value_groups, module.is_causal = groups, True
    return module


def _case(heads: int, kv_heads: int, width: int, columns: int = 11):
    generator = torch.Generator().manual_seed(heads + width)
    query = torch.randn(3, heads, width, 8, generator=generator)
    key, value = (torch.randn(3, kv_heads, columns, 8, generator=generator) for _ in range(2))
    mask = torch.rand(3, 1, width, columns, generator=generator) > 0.5
    mask[..., 0] = True  # a query that sees nothing has no defined output
    return query, key, value, mask


@each("width", [1, 5])
@each(("heads", "kv_heads"), [(4, 2), (6, 1), (4, 4)])
def test_it_equals_attention_with_repeated_keys_and_values(heads, kv_heads, width):
    query, key, value, mask = _case(heads, kv_heads, width)
    module = _module(heads // kv_heads)
    found, _ = grouped_attention(module, query, key, value, mask, scaling=0.3)
    wanted, _ = sdpa_attention_forward(module, query, key, value, mask, scaling=0.3)
    assert found.shape == wanted.shape == (3, width, heads, 8)
    assert torch.allclose(found, wanted, atol=1e-6)


@each(("heads", "kv_heads"), [(4, 2), (4, 4)])
@each("chunk", [1, 2**19])
def test_without_a_mask_it_is_causal_as_ever_and_so_are_its_gradients(heads, kv_heads, chunk, monkeypatch):
    monkeypatch.setattr(attention, "_CHUNK", chunk)
    inputs = [x.requires_grad_() for x in _case(heads, kv_heads, 11)[:3]]
    module = _module(heads // kv_heads)
    found, _ = grouped_attention(module, *inputs, None, scaling=0.3)
    wanted, _ = sdpa_attention_forward(module, *inputs, None, scaling=0.3)
    assert torch.allclose(found, wanted, atol=1e-6)
    assert not found[:, 0].equal(found[:, 1])
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(2))
    ours, theirs = (torch.autograd.grad((out * weight).sum(), inputs) for out in (found, wanted))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours, theirs, strict=True))


@given(
    width=st.integers(1, 9),
    before=st.integers(0, 4),
    window=st.integers(1, 20),
    starts=st.lists(st.integers(0, 4), min_size=2, max_size=2),
    queries=st.integers(1, 5),
)
def test_some_queries_at_a_time_over_the_columns_that_they_see_give_what_all_over_all_give(
    width, before, window, starts, queries
):
    columns = before + max(starts) + width
    inputs = [x[:2].double().requires_grad_() for x in _case(4, 2, width, columns)[:3]]
    position = torch.tensor(starts)[:, None, None, None] + torch.arange(width)[:, None]
    mask = (torch.arange(columns) <= position) & (torch.arange(columns) > position - window)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "_QUERIES", queries)
        found = attention.attend(*inputs, mask)
        patch.setattr(attention, "_ROW", 0)
        wanted = attention.attend(*inputs, mask)
    assert torch.allclose(found, wanted, atol=1e-6)
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(2), dtype=torch.double)
    ours, theirs = (torch.autograd.grad((out * weight).sum(), inputs) for out in (found, wanted))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(ours, theirs, strict=True))


def _kept_bytes_and_gradients(case):
    """Of a pass over the case: what it keeps for the backward pass without what it is given, output and gradients."""
    query, key, value, mask = (one.clone().requires_grad_(one.is_floating_point()) for one in case)
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        found, _ = grouped_attention(_module(3), query, key, value, mask, scaling=0.3)
    found.square().sum().backward()
    return sum(kept.values()), [found, query.grad, key.grad, value.grad]


def test_many_scores_are_computed_again_in_the_backward_pass_and_gradients_are_the_same_bit_for_bit(monkeypatch):
    case = _case(6, 2, 100, columns=120)
    scores = 4 * 3 * 6 * 100 * 120  # bytes of them, once
    few, wanted = _kept_bytes_and_gradients(case)
    monkeypatch.setattr(attention, "_KEPT", 0)
    kept, found = _kept_bytes_and_gradients(case)
    assert kept < 0.5 * scores < scores < few
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_columns_that_none_of_some_queries_sees_are_not_computed_for_them(monkeypatch):
    monkeypatch.setattr(attention, "_QUERIES", 4)
    query, key, value, _ = _case(4, 2, 12, 12)
    value[:, :, 8:] = torch.nan  # and 0 * nan is nan
    found = attention.attend(query, key, value, torch.ones(1, 1, 12, 12).tril().bool())
    assert found[:, :8].isfinite().all()
    assert found[:, 8:].isnan().all()


def test_long_rows_are_left_to_torch(monkeypatch):
    query, key, value, mask = _case(4, 2, 5)
    wanted, _ = grouped_attention(_module(2), query, key, value, mask, scaling=0.3)
    monkeypatch.setattr(attention, "_ROW", 4 * 5 * 11 - 1)
    monkeypatch.setattr(attention, "_written_out", None)  # would fail if it were called
    found, _ = grouped_attention(_module(2), query, key, value, mask, scaling=0.3)
    assert torch.allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("width", [1, 5, 12])
def test_in_half_precision_attention_is_written_out_with_its_softmax_in_float32(width):
    query, key, value, mask = (one.bfloat16() if one.is_floating_point() else one for one in _case(4, 2, width))
    wanted = attention.attend(query.float(), key.float(), value.float(), mask)
    found = attention.attend(query, key, value, mask)
    assert found.dtype == torch.bfloat16
    assert torch.allclose(found.float(), wanted, atol=0.02)


@each(
    ("config", "made", "kv_heads", "implementation", "expected"),
    [
        (Qwen3Config, Qwen3ForCausalLM, 2, "sdpa", "grouped_sdpa"),
        (LlamaConfig, LlamaForCausalLM, 2, "sdpa", "grouped_sdpa"),
        (Qwen3Config, Qwen3ForCausalLM, 4, "sdpa", "grouped_sdpa"),
        (Qwen3Config, Qwen3ForCausalLM, 2, "eager", "eager"),
    ],
)
def test_a_model_takes_it_where_it_would_have_taken_that_of_torch(config, made, kv_heads, implementation, expected):
    torch.manual_seed(0)
    sizes = SMALL | {"num_key_value_heads": kv_heads}
    model = made._from_config(config(**sizes), attn_implementation=implementation).eval()
    ids = torch.randint(20, (2, 7))
    mask = torch.ones(7, 7).tril().bool().expand(2, 1, 7, 7)
    before = model(input_ids=ids, attention_mask=mask).logits
    use_grouped_attention(model)
    assert model.config._attn_implementation == expected
    assert torch.allclose(model(input_ids=ids, attention_mask=mask).logits, before, atol=1e-5)
