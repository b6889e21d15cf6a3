"""The cache of slots: what a forward pass reads is what was written, wherever the slots are."""

import numpy as np
import pytest
import torch

from cod_lightning.engines.slots import SlotCache


def _write(cache: SlotCache, slots: list[int], first: list[int], states: torch.Tensor, used: int) -> torch.Tensor:
    """Keys that a pass over these slots sees; states are [b, heads, width, dim]."""
    cache.reserve(1 + max(slots), used + states.shape[2])
    cache.aim(np.array(slots), torch.tensor(first), states.shape[2], used)
    keys, values = cache.update(states, -states, 0)
    assert torch.equal(values[..., : keys.shape[2], :], -keys)
    return keys


@pytest.mark.parametrize("slots", [[0, 1, 2], [2, 3, 4], [4, 0, 2], [1, 0, 2]])
def test_a_pass_reads_what_each_slot_has_so_far(slots):
    cache = SlotCache()
    first, second = torch.randn(3, 2, 4, 5), torch.randn(3, 2, 1, 5)
    _write(cache, slots, [0, 0, 0], first, 4)
    keys = _write(cache, slots, [4, 4, 4], second, 5)
    assert torch.equal(keys, torch.cat([first, second], dim=2))


def test_neighbouring_slots_are_read_where_they_are():
    cache = SlotCache()
    keys = _write(cache, [1, 2], [0, 0], torch.randn(2, 2, 3, 5), 3)
    assert keys.untyped_storage().data_ptr() == cache._keys[0].untyped_storage().data_ptr()
    apart = _write(cache, [1, 3], [0, 0], torch.randn(2, 2, 3, 5), 3)
    assert apart.untyped_storage().data_ptr() != cache._keys[0].untyped_storage().data_ptr()


def test_a_copied_slot_goes_on_by_itself():
    cache = SlotCache()
    first, second = torch.randn(1, 2, 3, 5), torch.randn(2, 2, 1, 5)
    _write(cache, [0], [0], first, 3)
    cache.copy(np.array([0, 0]), np.array([0, 4]), 3)
    keys = _write(cache, [0, 4], [3, 3], second, 4)
    assert torch.equal(keys, torch.cat([first.expand(2, 2, 3, 5), second], dim=2))
