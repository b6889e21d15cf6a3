"""What slots begin with: the longest common beginning is found, and a slot that was dropped is not."""

from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.beginnings import num_alike
from cod_lightning.engines.decoder import Openings

IDS = st.lists(st.integers(0, 2), max_size=6).map(tuple)


@given(IDS, IDS)
def test_ids_are_alike_up_to_the_first_that_differs(one, other):
    num = num_alike(one, other)
    assert one[:num] == other[:num]
    assert len(one) == num or len(other) == num or one[num] != other[num]


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | IDS), max_size=20), IDS)
def test_a_slot_with_the_longest_common_beginning_is_found(events, ids):
    openings, held = Openings(), {}
    for slot, opening in events:
        if opening is None:
            openings.drop(slot)
            held.pop(slot, None)
        else:
            openings.put(slot, opening)
            held[slot] = opening
    slot, num = openings.longest(ids)
    assert num == max((num_alike(opening, ids) for opening in held.values()), default=0)
    assert num == 0 or num_alike(held[slot], ids) == num
