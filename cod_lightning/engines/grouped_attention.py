"""Attention over a cache without a copy of it: query heads that share keys and values become further queries of one head.

transformers repeats keys and values for every query head as soon as there is a mask; on long caches the copies cost more than the
attention. Between four query heads over two pairs of keys and values, and two heads with twice as many queries, there is no
difference but the order in which sums are rounded.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_NAME = "grouped_sdpa"


def grouped_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """As `sdpa_attention_forward`: query [b, heads, width, dim], key and value [b, kv_heads, columns, dim], mask [b, 1, width,
    columns]; the output is [b, width, heads, dim]."""
    batch, heads, width, dim = query.shape
    groups = heads // key.shape[1]
    if groups == 1 or attention_mask is None or attention_mask.shape[1] != 1 or kwargs.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    folded = query.reshape(batch, heads // groups, groups * width, dim)
    mask = attention_mask if width == 1 else attention_mask.repeat(1, 1, groups, 1)
    out = torch.nn.functional.scaled_dot_product_attention(folded, key, value, mask, dropout, scale=scaling)
    return out.reshape(batch, heads, width, dim).transpose(1, 2).contiguous(), None


def use_grouped_attention(model: PreTrainedModel) -> None:
    """Let this model attend so, where it would have used torch's attention with repeated keys and values."""
    if model.config._attn_implementation == "sdpa" and _shares_heads(model):
        AttentionInterface.register(_NAME, grouped_attention)
        AttentionMaskInterface.register(_NAME, sdpa_mask)
        model.set_attn_implementation(_NAME)


def _shares_heads(model: PreTrainedModel) -> bool:
    text = model.config.get_text_config()
    return getattr(text, "num_key_value_heads", None) not in (None, text.num_attention_heads)
