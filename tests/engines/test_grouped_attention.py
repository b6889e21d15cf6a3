"""Query heads folded over shared keys and values: the same numbers as repeated keys and values give."""

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from cod_lightning.engines.grouped_attention import grouped_attention, use_grouped_attention

SMALL = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 2, "intermediate_size": 16, "head_dim": 4}


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


@pytest.mark.parametrize("width", [1, 5])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 2), (6, 1), (4, 4)])
def test_it_equals_attention_with_repeated_keys_and_values(heads, kv_heads, width):
    query, key, value, mask = _case(heads, kv_heads, width)
    module = _module(heads // kv_heads)
    found, _ = grouped_attention(module, query, key, value, mask, scaling=0.3)
    wanted, _ = sdpa_attention_forward(module, query, key, value, mask, scaling=0.3)
    assert found.shape == wanted.shape == (3, width, heads, 8)
    assert torch.allclose(found, wanted, atol=1e-6)


def test_without_a_mask_it_is_causal_as_ever():
    query, key, value, _ = _case(4, 2, 11)
    found, _ = grouped_attention(_module(2), query, key, value, None, scaling=0.3)
    mask = torch.ones(11, 11).tril().bool().expand(3, 1, 11, 11)
    assert torch.allclose(found, grouped_attention(_module(2), query, key, value, mask, scaling=0.3)[0], atol=1e-6)


@pytest.mark.parametrize(
    ("config", "made", "kv_heads", "implementation", "expected"),
    [
        (Qwen3Config, Qwen3ForCausalLM, 2, "sdpa", "grouped_sdpa"),
        (LlamaConfig, LlamaForCausalLM, 2, "sdpa", "grouped_sdpa"),
        (Qwen3Config, Qwen3ForCausalLM, 4, "sdpa", "sdpa"),
        (Qwen3Config, Qwen3ForCausalLM, 2, "eager", "eager"),
    ],
)
def test_a_model_takes_it_where_it_would_have_repeated(config, made, kv_heads, implementation, expected):
    torch.manual_seed(0)
    model = made._from_config(
        config(**SMALL, num_attention_heads=4, num_key_value_heads=kv_heads), attn_implementation=implementation
    ).eval()
    ids = torch.randint(20, (2, 7))
    mask = torch.ones(7, 7).tril().bool().expand(2, 1, 7, 7)
    before = model(input_ids=ids, attention_mask=mask).logits
    use_grouped_attention(model)
    assert model.config._attn_implementation == expected
    assert torch.allclose(model(input_ids=ids, attention_mask=mask).logits, before, atol=1e-5)
