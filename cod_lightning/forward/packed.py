"""Rows of unequal length in one forward pass without padding: the new tokens of all rows one after the other, [1, T].

A layer works on each token by itself, so that nothing is computed for padding, and prompts that begin go with tokens in flight in
one pass. Only attention looks at rows: a block of similar ones at a time, over what the cache has of them.
"""

from bisect import bisect_left
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

from cod_lightning.forward.attention import GROUPED, attend, fused, grouped_attention, reads_some, use_grouped_attention
from cod_lightning.forward.last_layer import read_only_at
from cod_lightning.forward.row_tree import NO_MASK, ONE_BLOCK, keeps_keys_and_values
from cod_lightning.forward.slots import SlotCache

_NAME = "packed_sdpa"
_BLOCKS = "_cod_lightning_blocks"
"""Attribute of an attention layer: the blocks of the pass that it is in; none outside of such passes."""
_MANY_UNREAD = 256
"""So many unread tokens in a pass are worth leaving out of the last layer."""
_WIDTHS = (1, *(26 * 2**n - 10 for n in range(20)))
"""Of a class the widest row: 1, 16, 42, 94 and so on."""
_WORTH_SPLITTING = 2000
"""Columns, summed over rows of a single id, that a further block has to leave out."""
_NEXT_QUERIES = 5
"""Further ids of a row that cost as much per column as reading the column does."""
_ALIGNED = 8
"""Elements between lines of a bias, or a multiple of it."""


@dataclass(frozen=True)
class Rows:
    """Of b rows the slot in the cache, the columns that are taken there, and the new ids."""

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

    @cached_property
    def used(self) -> Int[np.ndarray, " b"]:
        """Columns of each row, the new ones included."""
        return self.starts + self.lengths

    @property
    def num_used(self) -> int:
        """Columns of the longest row, the new ones included."""
        return int(self.used.max())

    def similar(self) -> list[slice]:
        """Rows of one `width_class` each, in order of that class."""
        classes = np.searchsorted(_WIDTHS, self.lengths)
        ends = (classes[1:] != classes[:-1]).nonzero()[0] + 1
        return [slice(begin, end) for begin, end in pairwise((0, *ends.tolist(), len(classes)))]

    def blocks(self, *, few: bool = False) -> list[slice]:
        """Rows that attention takes as one rectangle each.

        They are of one class, first rows and last rows apart where this leaves out enough columns: best in their order.
        Where `few` are wanted, since on a GPU kernels of a further block cost more, they are of as many classes as give at most
        `ONE_BLOCK` scores.
        """
        if not few:
            return list(chain.from_iterable(map(self._in_two, self.similar())))
        parts: list[slice] = []
        for part in self.similar():
            both = slice(parts[-1].start if parts else 0, part.stop)
            if parts and (both.stop - both.start) * self.lengths[both].max() * self.used[both].max() <= ONE_BLOCK:
                parts[-1] = both
            else:
                parts.append(part)
        return parts

    def _in_two(self, part: slice) -> list[slice]:
        used, num = self.used[part], part.stop - part.start
        width = 1 + (self.lengths[part].max() - 1) / _NEXT_QUERIES
        if width * num * used.max() < _WORTH_SPLITTING:
            return [part]  # all of them are not as many
        before, after = np.maximum.accumulate(used), np.maximum.accumulate(used[::-1])[::-1]
        columns = np.arange(num) * np.roll(before, 1) + np.arange(num, 0, -1) * after
        middle = part.start + int(columns.argmin())
        if width * (columns[0] - columns.min()) < _WORTH_SPLITTING:
            return [part]
        return [slice(part.start, middle), slice(middle, part.stop)]


def width_class(num_ids: int) -> int:
    """A rectangle does not pad rows by much whose numbers of new ids are of one class; single tokens have one of their own."""
    return bisect_left(_WIDTHS, num_ids)


@dataclass
class Block:
    """Similar rows of a pass as a rectangle of `width` places; a row's last id takes those after it, too, and they are not read."""

    fused: bool
    """Whether torch's kernel attends, over a bias that layers share."""
    fed: Rows
    tokens: slice
    """Of the pass."""
    rows: slice | Tensor
    """Where the cache has them."""
    num_columns: int
    """Of the longest."""
    width: int
    positions: Int[Tensor, "b 1 W 1"]
    """Of the new ids in their rows."""
    visible: Bool[Tensor, "b 1 W C"]
    spread: Int[Tensor, " places"] | None
    """Which token is at each place; None where rows are equally long."""
    gathered: Int[Tensor, " n"] | None
    """Which place each token is at."""
    biases: dict[tuple[int | None, int], Tensor] = field(default_factory=dict)
    """What `bias` gave: layers alike share it."""

    @classmethod
    def of(cls, rows: Rows, part: slice, device: torch.device, *, fused: bool) -> "Block":
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
        positions = _tensor(some.starts[:, None] + along, device)[:, None, :, None]
        in_a_row = bool((np.diff(some.slots) == 1).all())  # read where they are
        where = slice(int(some.slots[0]), int(some.slots[-1]) + 1) if in_a_row else _tensor(some.slots, device)
        return cls(
            fused=fused,
            fed=some,
            tokens=slice(first, first + len(some.ids)),
            rows=where,
            num_columns=num_columns,
            width=width,
            positions=positions,
            visible=torch.arange(num_columns, device=device) <= positions,
            spread=spread,
            gathered=gathered,
        )

    def seen(self, window: int | None, *, from_last: bool = False) -> Bool[Tensor, "b 1 W C"]:
        """What each new id sees, or the last one of each row: of the columns up to its own, the last `window`."""
        seen, positions = self.visible, self.positions
        if from_last:
            seen, positions = self.visible_from_last, _tensor(self.fed.used - 1, seen.device)[:, None, None, None]
        if window is None or window >= self.num_columns:
            return seen
        return seen & (torch.arange(self.num_columns, device=seen.device) > positions - window)

    def bias(self, window: int | None, times: int, dtype: torch.dtype) -> Float[Tensor, "b 1 times_W C"]:
        """What is added to scores, of so many query heads that share keys: 0 where an id sees, -inf elsewhere."""
        if (window, times) not in self.biases:
            seen = self.seen(window).repeat(1, 1, times, 1)
            room = -seen.shape[3] % _ALIGNED  # a kernel copies biases whose lines begin elsewhere
            hidden = torch.nn.functional.pad(seen, (0, room)).logical_not_()
            bias = torch.zeros(hidden.shape, dtype=dtype, device=seen.device)
            self.biases[window, times] = bias.masked_fill_(hidden, -torch.inf)
        return self.biases[window, times][..., : self.num_columns]

    def read(self, store: Float[Tensor, "S h C d"]) -> Float[Tensor, "b h c d"]:
        """What the cache has of these rows."""
        seen = store[:, :, : self.num_columns]
        return seen[self.rows] if isinstance(self.rows, slice) else seen.index_select(0, self.rows)

    @cached_property
    def last(self) -> Int[Tensor, " b"]:
        """Of the pass's tokens, the last of each row."""
        return _tensor(self.fed.ends + (self.tokens.start - 1), self.visible.device)

    @cached_property
    def visible_from_last(self) -> Bool[Tensor, "b 1 1 C"]:
        """Of the last id of each row, which sees the whole row."""
        device = self.visible.device
        return torch.arange(self.num_columns, device=device) < _tensor(self.fed.used, device)[:, None, None, None]


def packs(model: PreTrainedModel) -> bool:
    """Whether all that a token leaves to later ones is keys and values, and attention is looked up by name."""
    use_grouped_attention(model)
    return model.config._attn_implementation in (GROUPED, _NAME) and keeps_keys_and_values(model)


class PackedForward:
    """A model that is fed such rows, each over its slot of a cache.

    From here on its layers attend by `packed_attention`, outside of such passes as they did before. `packs` says for which models.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._decode = None
        if model.device.type == "cuda":
            from cod_lightning.forward.decode_graphs import DecodeGraphs

            self._decode = DecodeGraphs(self._one_each)
        self.fused = model.device.type != "cpu"
        """Whether starting a kernel costs more than what it computes: few blocks, and one bias for all layers."""
        self.most_further = 2 if self._decode is None else 8
        """Passes that a turn which is over waits at most for others. A pass in which prompts join has no graph: on an H200 it takes
        several times as long as one that only decodes."""
        AttentionInterface.register(_NAME, packed_attention)
        AttentionMaskInterface.register(_NAME, sdpa_mask)
        model.set_attn_implementation(_NAME)
        self.model = model
        self._no_mask = NO_MASK.to(model.device)
        self._blocks: list[Block] = []
        for module in model.modules():
            if hasattr(module, "layer_idx"):
                setattr(module, _BLOCKS, self._blocks)

    def new_cache(self, num_slots: int, num_columns: int | None) -> SlotCache:
        """For at most so many dialogues, of so many tokens."""
        return SlotCache(num_slots, num_columns, self.model.device)

    def __call__(self, rows: Rows, cache: SlotCache) -> Float[Tensor, "b D"]:
        """Hidden states after each row's last new id; the cache gets keys and values of all of them."""
        in_flight = int((rows.ends == np.arange(1, 1 + len(rows.ends))).sum())  # they come first
        if self._decode is None or not in_flight:
            return self._packed(rows, cache)
        cache.reserve(1 + int(rows.slots.max()), 1 + rows.num_used)  # the last column is what unused slots write to
        hidden = self._decode(rows.slots[:in_flight], rows.starts[:in_flight], rows.ids[:in_flight], cache)
        if in_flight == len(rows.slots):
            return hidden
        return torch.cat((hidden, self._packed(rows[in_flight:], cache)))

    def _one_each(
        self, ids: Int[Tensor, " S"], columns: Int[Tensor, " S"], num_columns: int, cache: SlotCache
    ) -> Float[Tensor, "S D"]:
        """Slots 0 to S - 1 take an id each, over so many columns; the device is asked nothing, and no size depends on values."""
        device, num = ids.device, len(ids)
        cache.aim(torch.arange(num, device=device), columns)
        positions = columns[:, None, None, None]
        visible = torch.arange(num_columns, device=device) <= positions
        fed = Rows(*np.zeros((4, num), np.int64))  # what a graph takes is not known when it is recorded
        block = Block(self.fused, fed, slice(0, num), slice(0, num), num_columns, 1, positions, visible, None, None)
        return self._through([block], ids, columns, cache)

    def _packed(self, rows: Rows, cache: SlotCache) -> Float[Tensor, "b D"]:
        model, device, num_ids = self.model, self.model.device, len(rows.ids)
        columns, last = _tensor(rows.columns, device), _tensor(rows.ends - 1, device)
        cache.reserve(1 + int(rows.slots.max()), rows.num_used + (self._decode is not None))
        cache.aim(_tensor(np.repeat(rows.slots, rows.lengths), device), columns)
        reading = nullcontext()
        if num_ids - len(last) >= _MANY_UNREAD:
            at_last = torch.zeros((1, num_ids), dtype=torch.bool, device=device).index_fill_(1, last, True)
            reading = read_only_at(model, at_last)
        blocks = [Block.of(rows, part, device, fused=self.fused) for part in rows.blocks(few=self.fused)]
        with reading:
            return self._through(blocks, _tensor(rows.ids, device), columns, cache).index_select(0, last)

    def _through(
        self, blocks: list[Block], ids: Int[Tensor, " T"], columns: Int[Tensor, " T"], cache: SlotCache
    ) -> Float[Tensor, "T D"]:
        self._blocks[:] = blocks
        try:
            return self.model.base_model(
                input_ids=ids[None],
                position_ids=columns[None],
                attention_mask=self._no_mask,
                past_key_values=cache,
                use_cache=True,
            ).last_hidden_state[0]
        finally:
            self._blocks.clear()


def packed_attention(
    module: Any,
    query: Float[Tensor, "1 heads T d"],
    key: Float[Tensor, "S kv C d"],
    value: Float[Tensor, "S kv C v"],
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Float[Tensor, "1 T heads v"], None]:
    """In a packed pass, attention of each token over its row in the cache, or the last columns of it where the layer's
    attention slides; else `grouped_attention`."""
    blocks = getattr(module, _BLOCKS)
    if not blocks:
        return grouped_attention(module, query, key, value, attention_mask, dropout, scaling, **kwargs)
    window, softcap = kwargs.get("sliding_window"), kwargs.get("softcap")
    if reads_some(module):
        return _at_last(blocks, query, key, value, scaling, window, softcap), None
    out = []
    for block in blocks:
        some = query[0, :, block.tokens]
        if block.spread is not None:
            some = some.index_select(1, block.spread)
        some = some.unflatten(1, (-1, block.width)).transpose(0, 1)
        keys, values = block.read(key), block.read(value)
        if block.fused and softcap is None:
            found = fused(some, keys, values, block.bias(window, some.shape[1] // keys.shape[1], some.dtype), scaling)
        else:
            found = attend(some, keys, values, block.seen(window), scaling, softcap=softcap)
        found = found.flatten(0, 1)
        out.append(found if block.gathered is None else found.index_select(0, block.gathered))
    return (out[0] if len(out) == 1 else torch.cat(out))[None], None


def _at_last(
    blocks: list[Block],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scaling: float | None,
    window: int | None,
    softcap: float | None,
) -> Float[Tensor, "1 T heads v"]:
    """Of the last token of each row, and 0 elsewhere."""
    whole = query.new_zeros(query.shape[2], query.shape[1], value.shape[3])
    for block in blocks:
        some = query[0].index_select(1, block.last).transpose(0, 1)[:, :, None]
        seen = block.seen(window, from_last=True)
        found = attend(some, block.read(key), block.read(value), seen, scaling, softcap=softcap)
        whole.index_copy_(0, block.last, found[:, 0])
    return whole[None]


def _tensor(array: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(array).to(device)
