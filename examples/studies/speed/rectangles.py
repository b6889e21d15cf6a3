"""Forward passes as a batched loop has them: rows padded on the right, each over its slot of a cache."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from cod_lightning.forward.last_layer import output_layer, read_only_at
from cod_lightning.forward.packed import Rows
from cod_lightning.forward.slots import SlotCache


@dataclass
class Rectangle:
    """One forward pass: b rows of W ids, padded."""

    slots: np.ndarray
    starts: Tensor
    ids: Tensor
    positions: Tensor
    visible: Tensor
    used: int
    last: Tensor


def rectangle(rows: Rows) -> Rectangle:
    """Padded on the right, slots in order."""
    order = rows.slots.argsort()
    lengths, starts = torch.from_numpy(rows.lengths[order]), torch.from_numpy(rows.starts[order])
    by_row = np.split(rows.ids, rows.ends[:-1])
    positions = starts[:, None] + torch.arange(int(lengths.max()))
    return Rectangle(
        slots=rows.slots[order],
        starts=starts,
        ids=torch.nn.utils.rnn.pad_sequence([torch.from_numpy(by_row[row]) for row in order], batch_first=True),
        positions=positions,
        visible=torch.arange(rows.num_used) <= positions[:, :, None],
        used=rows.num_used,
        last=lengths - 1,
    )


class RectangleCache(SlotCache):
    """Returns what the rows of a rectangle have, instead of everything."""

    def begin(self, one: Rectangle) -> None:
        """The next forward pass is this one."""
        width, in_a_row = one.ids.shape[1], bool((np.diff(one.slots) == 1).all())
        slots = torch.from_numpy(one.slots)
        self.reserve(1 + int(one.slots.max()), one.used + width)
        self._rows: slice | Tensor = slice(int(one.slots[0]), int(one.slots[-1]) + 1) if in_a_row else slots
        self._used = one.used
        self.aim(slots.repeat_interleave(width), one.positions.flatten())

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        """Write [b, heads, width, dim] and return [b, heads, columns, dim]."""
        packed = (states.transpose(0, 1).flatten(1, 2)[None] for states in (key_states, value_states))
        stores = super().update(*packed, layer_idx)
        seen = (store[:, :, : self._used] for store in stores)
        if isinstance(self._rows, slice):
            return tuple(one[self._rows] for one in seen)
        return tuple(one.index_select(0, self._rows) for one in seen)


def feed(model: PreTrainedModel, cache: RectangleCache, one: Rectangle, whole: bool = False) -> Tensor:
    """Logits after each row; the last layer only there, unless it is wanted whole."""
    cache.begin(one)
    read = torch.arange(one.ids.shape[1]) == one.last[:, None]
    with nullcontext() if whole else read_only_at(model, read):
        hidden = model.base_model(
            input_ids=one.ids,
            position_ids=one.positions,
            attention_mask=one.visible[:, None],
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
    return output_layer(model)(hidden[torch.arange(len(one.slots)), one.last])
