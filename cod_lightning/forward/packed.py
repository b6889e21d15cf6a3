"""Rows of unequal length in one forward pass without padding: the new tokens of all rows one after the other, [1, T].

A layer works on each token by itself, so that nothing is computed for padding, and prompts that begin go with tokens in flight in
one pass. Only attention looks at rows: a block of similar ones at a time, over what the cache has of them.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

from cod_lightning.errors import ConfigError
from cod_lightning.forward.attention import GROUPED, attend, grouped_attention, reads_some, use_grouped_attention

_NAME = "packed_sdpa"
_PASS = "_cod_lightning_pass"
"""Attribute of an attention layer: the pass that it is in."""


@dataclass(frozen=True)
class Rows:
    """What a pass feeds: of b rows the slot in the cache, the columns that are taken there, and the new ids."""

    slots: Int[np.ndarray, " b"]
    starts: Int[np.ndarray, " b"]
    lengths: Int[np.ndarray, " b"]
    """Of the new ids, at least 1 each."""
    ids: Int[np.ndarray, " T"]
    """One row after the other."""

    def __getitem__(self, part: slice) -> "Rows":
        """Some of them."""
        ends = self.ends[part]
        ids = self.ids[ends[0] - self.lengths[part][0] : ends[-1]]
        return Rows(self.slots[part], self.starts[part], self.lengths[part], ids)

    @cached_property
    def ends(self) -> Int[np.ndarray, " b"]:
        """Where each row ends in `ids`."""
        return self.lengths.cumsum()

    @cached_property
    def columns(self) -> Int[np.ndarray, " T"]:
        """Of every new id, which is its position in the row."""
        if len(self.ids) == len(self.lengths):
            return self.starts
        return np.arange(len(self.ids)) + np.repeat(self.starts - self.ends + self.lengths, self.lengths)

    @property
    def num_used(self) -> int:
        """Columns of the longest row, the new ones included."""
        return int((self.starts + self.lengths).max())

    def similar(self) -> list[slice]:
        """Runs of rows, given shortest first, that a rectangle does not pad by much; single tokens by themselves."""
        out: list[slice] = []
        begin, lengths = 0, self.lengths.tolist()
        for end, length in enumerate(lengths):
            if length > (1 if lengths[begin] == 1 else 2 * lengths[begin] + 8):
                out.append(slice(begin, end))
                begin = end
        return [*out, slice(begin, len(lengths))]


@dataclass
class Block:
    """Similar rows of a pass as a rectangle of `width` places; a row's last id takes those after it, too, and nobody reads them."""

    tokens: slice
    """Of the pass."""
    rows: slice | Tensor
    """Where the cache has them."""
    num_columns: int
    """Of the longest."""
    width: int
    visible: Bool[Tensor, "b 1 W C"]
    last: Int[Tensor, " b"]
    """Of the block's tokens, the last of each row."""
    spread: Int[Tensor, " places"] | None
    """Which token is at each place; None where rows are equally long."""
    gathered: Int[Tensor, " n"] | None
    """Which place each token is at."""

    @classmethod
    def of(cls, rows: Rows, part: slice, device: torch.device) -> "Block":
        """That part of the rows."""
        some = rows[part]
        first = int(rows.ends[part.start] - rows.lengths[part.start])
        width, num_columns = int(some.lengths.max()), some.num_used
        along = np.arange(width)
        spread = gathered = None
        if width != some.lengths.min():
            within = np.minimum(along, some.lengths[:, None] - 1)
            spread = _tensor((within + (some.ends - some.lengths)[:, None]).ravel(), device)
            gathered = _tensor((along < some.lengths[:, None]).ravel().nonzero()[0], device)
        positions = _tensor(some.starts[:, None] + along, device)
        in_a_row = bool((np.diff(some.slots) == 1).all())  # read where they are
        where = slice(int(some.slots[0]), int(some.slots[-1]) + 1) if in_a_row else _tensor(some.slots, device)
        return cls(
            tokens=slice(first, first + len(some.ids)),
            rows=where,
            num_columns=num_columns,
            width=width,
            visible=torch.arange(num_columns, device=device) <= positions[:, None, :, None],
            last=_tensor(some.ends - 1, device),
            spread=spread,
            gathered=gathered,
        )

    def read(self, store: Float[Tensor, "S h C d"]) -> Float[Tensor, "b h c d"]:
        """What the cache has of these rows."""
        seen = store[:, :, : self.num_columns]
        return seen[self.rows] if isinstance(self.rows, slice) else seen.index_select(0, self.rows)

    @cached_property
    def visible_from_last(self) -> Bool[Tensor, "b 1 1 C"]:
        """Of the last id of each row, which sees the whole row."""
        return self.visible.gather(2, self._last_place.expand(-1, -1, -1, self.num_columns))

    @cached_property
    def _last_place(self) -> Tensor:
        lengths = torch.diff(self.last, prepend=self.last.new_full((1,), -1))
        return (lengths - 1)[:, None, None, None]


@dataclass
class Pass:
    """The pass that a model is in; no blocks: none of this kind."""

    blocks: list[Block] = field(default_factory=list)


def use_packed_rows(model: PreTrainedModel) -> Pass:
    """Let this model take such passes, each as what is returned says at the time."""
    use_grouped_attention(model)
    kind = model.config._attn_implementation
    if kind != GROUPED:
        raise ConfigError(
            "model.policy", f"a model with attention '{kind}'", "sdpa", "Load it so, or let vLLM serve it."
        )
    AttentionInterface.register(_NAME, packed_attention)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    model.set_attn_implementation(_NAME)
    current = Pass()
    for module in model.modules():
        if hasattr(module, "layer_idx"):
            setattr(module, _PASS, current)
    return current


def packed_attention(
    module: Any,
    query: Float[Tensor, "1 heads T d"],
    key: Float[Tensor, "S kv C d"],
    value: Float[Tensor, "S kv C d"],
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Float[Tensor, "1 T heads d"], None]:
    """In a packed pass, of each token over its row in the cache, given whole; else `grouped_attention`."""
    blocks = getattr(module, _PASS).blocks
    if not blocks:
        return grouped_attention(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    if reads_some(module):
        return _at_last(blocks, query, key, value, scaling), None
    out = []
    for block in blocks:
        some = query[0, :, block.tokens]
        if block.spread is not None:
            some = some.index_select(1, block.spread)
        some = some.unflatten(1, (-1, block.width)).transpose(0, 1)
        found = attend(some, block.read(key), block.read(value), block.visible, scaling).flatten(0, 1)
        out.append(found if block.gathered is None else found.index_select(0, block.gathered))
    return (out[0] if len(out) == 1 else torch.cat(out))[None], None


def _at_last(
    blocks: list[Block], query: Tensor, key: Tensor, value: Tensor, scaling: float | None
) -> Float[Tensor, "1 T heads d"]:
    """Of the last token of each row, and 0 elsewhere."""
    whole = query.new_zeros(query.shape[2], query.shape[1], query.shape[3])
    for block in blocks:
        where = block.last + block.tokens.start
        some = query[0].index_select(1, where).transpose(0, 1)[:, :, None]
        found = attend(some, block.read(key), block.read(value), block.visible_from_last, scaling)
        whole.index_copy_(0, where, found[:, 0])
    return whole[None]


def _tensor(array: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)
