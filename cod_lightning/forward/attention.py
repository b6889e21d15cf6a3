"""Attention of short rows on the CPU, and over a cache without a copy of it.

Query heads that share keys and values become further queries of one head: transformers repeats keys and values for every query head
as soon as there is a mask, and on long caches the copies cost more than the attention. Where a row has few scores they are written
out, some rows and some queries at a time, so that they stay in the processor's cache, and without the columns that none of these
queries sees: two batched products take down to a fifth of the time of torch's fused kernel, which is made for long rows and with a
mask computes what it hides, too. Either way there is no difference but the order in which sums are rounded.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

GROUPED = "grouped_sdpa"
"""Name of this attention in a model's config."""
_QUERIES = 64
"""Neighbouring queries of a row whose scores are written out at a time."""
_ROW = 2**18
"""Most scores of so many queries, all heads together, that are written out."""
MOST_SCORES = _ROW // _QUERIES
"""Of one query, all heads together, that are written out."""
_CHUNK = 2**19
"""About how many scores are written out at a time."""
_KEPT = 2**20
"""Most scores of so many queries that are kept for the backward pass; more are computed again, in a tenth of a layer's time."""
ROWS = "row_tree"
"""Keyword of such a layer, for the nodes of rows (`forward/row_tree.py`)."""
_READ = "_cod_lightning_read"
"""Attribute of an attention layer: where its output is read."""


def use_grouped_attention(model: PreTrainedModel) -> None:
    """Let this model attend so, where it would have used torch's attention.

    One that chooses the keys of each query by an indexer (DeepSeek-V3.2, GLM-5) masks the others only under torch's name.
    """
    if model.config._attn_implementation == "sdpa" and not hasattr(model.config.get_text_config(), "index_head_dim"):
        AttentionInterface.register(GROUPED, grouped_attention)
        AttentionMaskInterface.register(GROUPED, sdpa_mask)
        model.set_attn_implementation(GROUPED)


def is_grouped(model: PreTrainedModel) -> bool:
    """Whether it attends so."""
    return model.config._attn_implementation == GROUPED


@contextmanager
def read_from(attention: nn.Module, positions: Bool[Tensor, "B T"]) -> Iterator[None]:
    """Inside, this layer's queries at other positions may be left out, with output 0."""
    setattr(attention, _READ, positions)
    try:
        yield
    finally:
        delattr(attention, _READ)


def reads_some(attention: nn.Module) -> bool:
    """Whether it is in such a pass."""
    return getattr(attention, _READ, None) is not None


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
    columns], true where a query sees; the output is [b, width, heads, dim]. A `softcap` bounds the scores, which torch's
    kernel does not know. With a tree of rows (`forward/row_tree.py`) N nodes come in place of width and columns, b is 1.
    """
    positions: Tensor | None = getattr(module, _READ, None)
    if (tree := kwargs.pop(ROWS, None)) is None:
        return _attended_at(positions, module, query, key, value, attention_mask, dropout, scaling, **kwargs), None

    def along_paths(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return _attended_at(None, module, query, key, value, None, dropout, scaling, **kwargs)
        return attend(query, key, value, mask, scaling, dropout, kwargs.get("softcap"))

    window, predicting = kwargs.get("sliding_window"), positions is not None
    return tree.attended(along_paths, query, key, value, window, predicting=predicting), None


def _attended_at(
    positions: Bool[Tensor, "B T"] | None,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float,
    scaling: float | None,
    **kwargs: Any,
) -> Tensor:
    """The output at these positions, or at all."""
    width, columns, softcap = query.shape[2], key.shape[2], kwargs.get("softcap")
    written_out = softcap is not None or _is_written_out(query, key, dropout)
    if attention_mask is None and written_out and width == columns and _is_causal(module, kwargs):
        attention_mask = torch.ones((1, 1, width, columns), dtype=torch.bool, device=query.device).tril()
    if attention_mask is None or attention_mask.shape[1] != 1 or kwargs.get("position_bias") is not None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout, scaling, **kwargs)[0]
    if written_out and positions is not None:
        return _written_out_at(positions, query, key, value, attention_mask, _scale(query, scaling), softcap)
    return attend(query, key, value, attention_mask, scaling, dropout, softcap)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scaling: float | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
) -> Tensor:
    """The same without a module: [b, width, heads, dim]."""
    if softcap is not None or _is_written_out(query, key, dropout):
        return _written_out(query, key, value, mask, _scale(query, scaling), softcap)
    folded = mask if query.shape[2] == 1 else mask.repeat(1, 1, query.shape[1] // key.shape[1], 1)
    return fused(query, key, value, folded, scaling, dropout)


def fused(
    query: Float[Tensor, "b heads width dim"],
    key: Float[Tensor, "b kv columns dim"],
    value: Float[Tensor, "b kv columns v"],
    mask: Tensor,
    scaling: float | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "b width heads v"]:
    """By torch's kernel. The mask is [b, 1, heads / kv * width, columns], one query head after the other, or fits it: true where a
    query sees, or what is added to scores."""
    batch, heads, width, dim = query.shape
    folded = query.reshape(batch, key.shape[1], -1, dim)
    out = torch.nn.functional.scaled_dot_product_attention(folded, key, value, mask, dropout, scale=scaling)
    return out.reshape(batch, heads, width, value.shape[3]).transpose(1, 2).contiguous()


def _is_written_out(query: Tensor, key: Tensor, dropout: float) -> bool:
    scores = query.shape[1] * min(query.shape[2], _QUERIES) * key.shape[2]
    return query.device.type == "cpu" and not dropout and scores <= _ROW


def _scale(query: Tensor, scaling: float | None) -> float:
    return query.shape[3] ** -0.5 if scaling is None else scaling


def _is_causal(module: nn.Module, kwargs: dict[str, Any]) -> bool:
    is_causal_option = kwargs.get("is_causal")
    return bool(getattr(module, "is_causal", True) if is_causal_option is None else is_causal_option)


def _written_out(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float, softcap: float | None
) -> Tensor:
    """Attention as its definition has it, some queries of some rows at a time; scores and their softmax in float32."""
    batch, heads, width, dim = query.shape
    kv_heads = key.shape[1]
    shared = query.reshape(batch, kv_heads, heads // kv_heads, width, dim)
    out = []
    for queries, columns in _seen(mask, width):
        seen = mask[:, :, queries, columns]
        some = shared[:, :, :, queries] * scaling, key[:, :, columns], value[:, :, columns], seen
        if torch.is_grad_enabled() and query.requires_grad and batch * heads * seen[0, 0].numel() > _KEPT:
            found = checkpoint(_attended, *some, softcap, use_reentrant=False, preserve_rng_state=False)
        else:
            found = _attended(*some, softcap)
        out.append(found.reshape(batch, heads, -1, value.shape[3]))
    return (out[0] if len(out) == 1 else torch.cat(out, dim=2)).transpose(1, 2).contiguous()


def _seen(mask: Bool[Tensor, "B 1 width columns"], width: int) -> Iterator[tuple[slice, slice]]:
    """Neighbouring queries, and of the columns those from the first to the last that any of them sees, in any row."""
    if width <= _QUERIES:
        yield slice(0, width), slice(0, mask.shape[3])
        return
    for begin in range(0, width, _QUERIES):
        queries = slice(begin, min(begin + _QUERIES, width))
        seen = mask[:, 0, queries].flatten(0, 1).any(dim=0).nonzero().flatten().tolist() or [0]
        yield queries, slice(seen[0], seen[-1] + 1)


def _attended(
    query: Float[Tensor, "B kv shared n dim"],
    key: Float[Tensor, "B kv c dim"],
    value: Float[Tensor, "B kv c v"],
    mask: Bool[Tensor, "B 1 n c"],
    softcap: float | None,
) -> Float[Tensor, "B kv shared_times_n v"]:
    """Of these queries over all of these columns."""
    batch, num, columns = query.shape[0], query.shape[3], key.shape[2]
    hidden = torch.where(mask, 0.0, -torch.inf)
    folded, hidden = query.flatten(2, 3), hidden[:, :, None].expand(batch, -1, -1, -1, -1)
    rows = max(1, _CHUNK // (folded.shape[1] * folded.shape[2] * columns))
    out = []
    for q, k, v, h in zip(folded.split(rows), key.split(rows), value.split(rows), hidden.split(rows), strict=True):
        scores = _products(q, k)
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        scores.unflatten(2, (-1, num)).add_(h)  # query heads that share keys see alike
        out.append(torch.matmul(scores.softmax(dim=-1).to(v.dtype), v))
    return out[0] if len(out) == 1 else torch.cat(out)


def _products(query: Float[Tensor, "B kv n dim"], key: Float[Tensor, "B kv c dim"]) -> Float[Tensor, "B kv n c"]:
    """Of each query with each key, in float32."""
    if query.dtype == torch.float32 or query.requires_grad:
        return torch.matmul(query, key.transpose(2, 3)).float()
    # in half precision a batched product copies an operand that is transposed: the few queries, not the many keys
    return torch.matmul(key, query.transpose(2, 3)).transpose(2, 3).contiguous().float()


def _written_out_at(
    positions: Bool[Tensor, "B T"],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    scaling: float,
    softcap: float | None,
) -> Tensor:
    """The same at these positions, and 0 at others. Rows that have fewer than others compute some that are then left out."""
    batch, heads, width, dim = query.shape
    whole = query.new_zeros(batch * width, heads * value.shape[3])
    if most := int(positions.sum(dim=1).max()):
        chosen = (~positions).byte().argsort(dim=1, stable=True)[:, :most]
        along = chosen[:, None, :, None]
        queries = query.gather(2, along.expand(-1, heads, -1, dim))
        seen = mask.expand(batch, -1, -1, -1).gather(2, along.expand(-1, -1, -1, mask.shape[3]))
        found = _written_out(queries, key, value, seen, scaling, softcap).reshape(batch, most, -1)
        read = positions.gather(1, chosen)
        rows = torch.arange(batch, device=query.device)[:, None] * width + chosen
        whole = whole.index_copy(0, rows[read], found[read])
    return whole.view(batch, width, heads, -1)
