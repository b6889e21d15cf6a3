"""Attention of short rows on the CPU, and over a cache without a copy of it.

Query heads that share keys and values become further queries of one head: transformers repeats keys and values for every query head
as soon as there is a mask, and on long caches the copies cost more than the attention. Where a row has few scores they are written
out, some rows at a time, so that they stay in the processor's cache: two batched products take down to a fifth of the time of
torch's fused kernel, which is made for long rows. Either way there is no difference but the order in which sums are rounded.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

_NAME = "grouped_sdpa"
_ROW = 2**17
"""Most scores of a row, all heads together, that are written out."""
_CHUNK = 2**19
"""Scores that are written out at a time."""


def use_grouped_attention(model: PreTrainedModel) -> None:
    """Let this model attend so, where it would have used torch's attention."""
    if model.config._attn_implementation == "sdpa":
        AttentionInterface.register(_NAME, grouped_attention)
        AttentionMaskInterface.register(_NAME, sdpa_mask)
        model.set_attn_implementation(_NAME)


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
    columns], true where a query sees; the output is [b, width, heads, dim]."""
    batch, heads, width, dim = query.shape
    kv_heads, columns = key.shape[1:3]
    groups, scores = heads // kv_heads, heads * width * columns
    written_out = query.device.type == "cpu" and not dropout and scores <= _ROW
    if attention_mask is None and written_out and width == columns and _is_causal(module, kwargs):
        attention_mask = torch.ones((1, 1, width, columns), dtype=torch.bool).tril()
    if attention_mask is None or attention_mask.shape[1] != 1 or kwargs.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    folded = query.reshape(batch, kv_heads, groups * width, dim)
    mask = attention_mask if width == 1 else attention_mask.repeat(1, 1, groups, 1)
    if written_out:
        out = _written_out(
            folded, key, value, mask, dim**-0.5 if scaling is None else scaling, max(1, _CHUNK // scores)
        )
    else:
        out = torch.nn.functional.scaled_dot_product_attention(folded, key, value, mask, dropout, scale=scaling)
    return out.reshape(batch, heads, width, dim).transpose(1, 2).contiguous(), None


def _is_causal(module: nn.Module, kwargs: dict[str, Any]) -> bool:
    given = kwargs.get("is_causal")
    return bool(getattr(module, "is_causal", True) if given is None else given)


def _written_out(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float, rows: int) -> Tensor:
    """Attention of [b, heads, n, dim] as its definition has it, that many rows at a time; scores and their softmax in float32."""
    hidden = torch.where(mask, 0.0, -torch.inf).expand(len(query), -1, -1, -1)
    out = []
    for q, k, v, h in zip(query.split(rows), key.split(rows), value.split(rows), hidden.split(rows), strict=True):
        scores = torch.matmul(q * scaling, k.transpose(2, 3)).float().add_(h)
        out.append(torch.matmul(scores.softmax(dim=-1).to(v.dtype), v))
    return out[0] if len(out) == 1 else torch.cat(out)
