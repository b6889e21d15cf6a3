"""A key-value cache with a slot for every live dialogue, kept across the turns of an episode.

Slot s, column c of layer l holds token c of that dialogue, one head after the other: no gaps, whatever the neighbours do. A
forward pass names the slots it works on and the columns it writes; tokens after a row's end are garbage that the mask hides and
the next write replaces.
"""

import numpy as np
import torch
from torch import Tensor
from transformers import Cache


class SlotCache(Cache):
    """Keys and values of up to `num_slots` dialogues of up to `num_columns` tokens; both grow on demand."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self.num_slots = 0
        self.num_columns = 0
        self._slots = torch.empty(0, dtype=torch.long)
        self._columns = torch.empty(0, dtype=torch.long)
        self._written: dict[int, Tensor] = {}
        self._used_columns = 0
        self._run: int | None = None

    def reserve(self, num_slots: int, num_columns: int) -> None:
        """Make room, keeping what is there; sizes at least double when they grow."""
        if num_slots <= self.num_slots and num_columns <= self.num_columns:
            return
        old_columns = self.num_columns
        if num_slots > self.num_slots:
            self.num_slots = max(num_slots, 2 * self.num_slots)
        if num_columns > self.num_columns:
            self.num_columns = max(num_columns, 2 * self.num_columns)
        for store in (self._keys, self._values):
            for layer, tensor in enumerate(store):
                old_slots, heads, _, dim = tensor.shape
                grown = tensor.new_zeros(self.num_slots, heads, self.num_columns, dim)
                grown[:old_slots, :, :old_columns] = tensor
                store[layer] = grown

    def aim(self, slots: np.ndarray, first_columns: Tensor, width: int, used_columns: int) -> None:
        """The next forward pass works on `slots` [b] and writes `width` columns from `first_columns` [b] on."""
        device = first_columns.device
        in_a_row = bool((np.diff(slots) == 1).all())
        self._run = int(slots[0]) if in_a_row else None
        self._slots = torch.from_numpy(slots).to(device)
        self._columns = first_columns[:, None] + torch.arange(width, device=device)
        self._written.clear()
        self._used_columns = used_columns

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: object, **__: object):
        """Write [b, heads, width, dim] and return everything up to the longest row, [b, heads, columns, dim]."""
        while len(self._keys) <= layer_idx:
            shape = (self.num_slots, key_states.shape[1], self.num_columns, key_states.shape[3])
            self._keys.append(key_states.new_zeros(shape))
            self._values.append(value_states.new_zeros(shape))
        return (
            self._write_and_read(self._keys[layer_idx], key_states),
            self._write_and_read(self._values[layer_idx], value_states),
        )

    def _write_and_read(self, store: Tensor, states: Tensor) -> Tensor:
        flat = store.view(-1, store.shape[3])
        flat.index_copy_(0, self._places(store.shape[1]), states.reshape(-1, store.shape[3]).to(store.dtype))
        seen = store[:, :, : self._used_columns]
        if self._run is not None:  # neighbours are read where they are
            return seen[self._run : self._run + len(self._slots)]
        return seen.index_select(0, self._slots)

    def _places(self, heads: int) -> Tensor:
        """Where [b, heads, width] tokens are written, of all [slots, heads, columns]; layers alike share them."""
        if heads not in self._written:
            rows = self._slots[:, None] * heads + torch.arange(heads, device=self._slots.device)
            self._written[heads] = (rows[:, :, None] * self.num_columns + self._columns[:, None]).flatten()
        return self._written[heads]

    def copy(self, source: np.ndarray, target: np.ndarray, num_columns: int) -> None:
        """Let each target slot begin with the columns of its source."""
        self.reserve(1 + int(target.max()), num_columns)
        for store in (*self._keys, *self._values):
            store[target, :, :num_columns] = store[source, :, :num_columns]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: positions and masks are always given explicitly."""
        return 0
