"""A key-value cache with a slot for every live dialogue, kept across the turns of an episode.

Slot s, column c of layer l holds token c of that dialogue, one head after the other: no gaps, whatever the neighbours do. A
forward pass names the slot and the column that each of its tokens goes to, and reads its rows in the whole store by itself
(`forward/packed.py`).
"""

import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import Cache


class SlotCache(Cache):
    """Keys and values of up to `num_slots` dialogues of up to `num_columns` tokens; both grow on demand.

    Args:
        most_slots: No room is made for more before they are there.
        most_columns: The same of columns; None: the room at least doubles.
        device: Where keys and values will be.
    """

    takes_beginnings = True

    def __init__(
        self, most_slots: int | None = None, most_columns: int | None = None, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__(layers=[])
        self._most = most_slots or math.inf, most_columns or math.inf
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self.num_slots = 0
        self.num_columns = 0
        self._slots = torch.empty(0, dtype=torch.long, device=device)
        self._columns = torch.empty(0, dtype=torch.long, device=device)
        self._places: dict[int, Tensor] = {}
        """Where tokens are written, by the number of heads."""

    @property
    def device(self) -> torch.device:
        """Where keys and values are."""
        return self._slots.device

    @property
    def places(self) -> tuple[int, ...]:
        """How many slots and columns there are, and where each layer's keys and values begin in memory: they move when it grows."""
        return self.num_slots, self.num_columns, *(store.data_ptr() for store in (*self._keys, *self._values))

    def reserve(self, num_slots: int, num_columns: int) -> None:
        """Make room, keeping what is there; sizes at least double when they grow, up to the most that is expected."""
        if num_slots <= self.num_slots and num_columns <= self.num_columns:
            return
        old_columns = self.num_columns
        if num_slots > self.num_slots:
            self.num_slots = max(num_slots, int(min(self._most[0], 2 * self.num_slots)))
        if num_columns > self.num_columns:
            self.num_columns = max(num_columns, int(min(self._most[1], 2 * self.num_columns)))
        for store in (self._keys, self._values):
            for layer, tensor in enumerate(store):
                old_slots, heads, _, dim = tensor.shape
                grown = tensor.new_zeros(self.num_slots, heads, self.num_columns, dim)
                grown[:old_slots, :, :old_columns] = tensor
                store[layer] = grown

    def aim(self, slots: Int[Tensor, " T"], columns: Int[Tensor, " T"]) -> None:
        """The next forward pass has tokens [1, T] for these slots and columns."""
        self._slots, self._columns = slots, columns
        self._places.clear()

    def update(
        self,
        key_states: Float[Tensor, "1 h T d"],
        value_states: Float[Tensor, "1 h T v"],
        layer_idx: int,
        *_: object,
        **__: object,
    ) -> tuple[Float[Tensor, "S h C d"], Float[Tensor, "S h C v"]]:
        """Write them, and return everything: all slots and columns."""
        while len(self._keys) <= layer_idx:
            for store, states in ((self._keys, key_states), (self._values, value_states)):
                store.append(states.new_zeros(self.num_slots, states.shape[1], self.num_columns, states.shape[3]))
        keys, values = self._keys[layer_idx], self._values[layer_idx]
        for store, states in ((keys, key_states), (values, value_states)):
            flat = store.view(-1, store.shape[3])
            flat.index_copy_(0, self._places_of(store.shape[1]), states.reshape(-1, store.shape[3]).to(store.dtype))
        return keys, values

    def _places_of(self, heads: int) -> Int[Tensor, " heads_times_T"]:
        """In all [slots, heads, columns]; layers alike share them."""
        if heads not in self._places:
            rows = self._slots * heads + torch.arange(heads, device=self._slots.device)[:, None]
            self._places[heads] = (rows * self.num_columns + self._columns).flatten()
        return self._places[heads]

    def copy(self, source: np.ndarray, target: np.ndarray, num_columns: int) -> None:
        """Let each target slot begin with the columns that its source has now, be this one a target, too."""
        self.reserve(1 + int(target.max()), num_columns)
        read, written = (torch.from_numpy(slots).to(self._slots.device) for slots in (source, target))
        for store in (*self._keys, *self._values):
            begins = store[:, :, :num_columns]
            begins.index_copy_(0, written, begins.index_select(0, read))

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: positions and masks are always passed explicitly."""
        return 0
