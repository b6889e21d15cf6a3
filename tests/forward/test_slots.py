"""The cache of slots: what was written is where its slot and column say, and stays while others write and the store grows."""

import numpy as np
import torch

from cod_lightning.forward.slots import SlotCache
from tests.cases import each


def _write(
    cache: SlotCache, slots: list[int], first: list[int], states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A pass that adds states [b, heads, width, dim], values being keys turned round, to the slots from these columns on."""
    width = states.shape[2]
    cache.reserve(1 + max(slots), max(first) + width)
    columns = (torch.tensor(first)[:, None] + torch.arange(width)).flatten()
    cache.aim(torch.tensor(slots).repeat_interleave(width), columns)
    packed = states.transpose(0, 1).flatten(1, 2)[None]
    return cache.update(packed, -packed, 0)


@each("slots", [[0, 1, 2], [2, 3, 4], [4, 0, 2], [1, 0, 2]])
def test_each_slot_has_what_it_was_given_so_far(slots):
    cache = SlotCache()
    first, second = torch.randn(3, 2, 4, 5), torch.randn(3, 2, 1, 5)
    _write(cache, slots, [0, 0, 0], first)
    keys, values = _write(cache, slots, [4, 4, 4], second)
    assert torch.equal(keys[slots, :, :5], torch.cat([first, second], dim=2))
    assert torch.equal(values, -keys)


def test_slots_keep_their_own_while_others_write_and_the_store_grows():
    cache = SlotCache()
    first = torch.randn(2, 2, 3, 5)
    _write(cache, [0, 1], [0, 0], first)
    keys, _ = _write(cache, [9], [0], torch.randn(1, 2, 30, 5))
    assert keys.shape[0] >= 10
    assert keys.shape[2] >= 30
    assert torch.equal(keys[:2, :, :3], first)


def test_a_copied_slot_goes_on_by_itself_and_slots_copied_in_a_ring_get_what_the_others_had():
    cache = SlotCache()
    first, second = torch.randn(1, 2, 3, 5), torch.randn(2, 2, 1, 5)
    _write(cache, [0], [0], first)
    cache.copy(np.array([0, 0]), np.array([0, 4]), 3)
    keys, _ = _write(cache, [0, 4], [3, 3], second)
    assert torch.equal(keys[[0, 4], :, :4], torch.cat([first.expand(2, 2, 3, 5), second], dim=2))
    cache = SlotCache()
    first = torch.randn(3, 2, 4, 5)
    keys, _ = _write(cache, [0, 1, 2], [0, 0, 0], first)
    cache.copy(np.array([1, 2, 0]), np.array([0, 1, 2]), 3)
    assert torch.equal(keys[:3, :, :3], first[[1, 2, 0], :, :3])
    assert torch.equal(keys[:3, :, 3:4], first[:, :, 3:])


def test_no_room_is_made_for_more_than_is_expected_until_it_is_there():
    cache = SlotCache(most_slots=6, most_columns=10)
    _write(cache, [0, 3], [0, 0], torch.randn(2, 2, 6, 5))
    keys, _ = _write(cache, [4], [5], torch.randn(1, 2, 2, 5))
    assert keys.shape == (6, 2, 10, 5)
    keys, _ = _write(cache, [7], [0], torch.randn(1, 2, 12, 5))
    assert keys.shape == (8, 2, 12, 5)


def test_a_cache_of_another_shape_is_another_place_even_where_it_begins_at_the_same_address(monkeypatch):
    """The allocator hands memory that was given back to the next cache; a recorded pass would write to the wrong columns."""
    monkeypatch.setattr(torch.Tensor, "data_ptr", lambda _: 0)
    places = []
    for num_columns in (8, 16, 8):
        cache = SlotCache(most_slots=2, most_columns=num_columns)
        _write(cache, [0, 1], [0, 0], torch.randn(2, 2, num_columns, 5))
        places.append(cache.places)
    assert places[0] == places[2] != places[1]
