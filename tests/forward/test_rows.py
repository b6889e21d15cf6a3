"""Rows of a pass: where their ids go, and which of them are fed as one rectangle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cod_lightning.forward.rows import width_class
from tests.forward.rows import rows_of


def test_rows_know_where_their_ids_go():
    rows = rows_of([5, 1, 2], [7, 0, 3], [[9], [1, 2], [3, 4, 5]])
    assert rows.columns.tolist() == [7, 0, 1, 3, 4, 5]
    assert rows.ends.tolist() == [1, 3, 6]
    assert rows.num_used == 8
    part = rows[1:]
    assert (part.ids.tolist(), part.columns.tolist(), part.slots.tolist()) == ([1, 2, 3, 4, 5], [0, 1, 3, 4, 5], [1, 2])


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([1, 1, 1], [3]),
        ([1, 1, 2, 3], [2, 2]),  # a token by itself is never padded
        ([2, 5, 16, 17, 42, 43], [3, 2, 1]),
    ],
)
def test_similar_rows_share_a_rectangle(lengths, expected):
    rows = rows_of(range(len(lengths)), [0] * len(lengths), [[0] * length for length in lengths])
    assert [part.stop - part.start for part in rows.similar()] == expected


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50))
def test_rows_of_one_width_class_are_alike(lengths):
    for length in lengths:
        alike = [other for other in lengths if width_class(other) == width_class(length)]
        assert max(alike) == 1 or max(alike) <= 2 * min(alike) + 12


@pytest.mark.parametrize(
    ("used", "width", "expected"),
    [
        ([10] * 100 + [50] * 10, 1, [100, 10]),  # leaves out 100 x 40 columns
        ([10] * 40 + [50] * 10, 1, [50]),  # 40 x 40 are not worth a block of their own,
        ([10] * 40 + [50] * 10, 3, [40, 10]),  # but they are where three queries see each
        ([10] * 100, 1, [100]),
        ([9], 1, [1]),
        ([50] * 10 + [10] * 100, 1, [10, 100]),
    ],
)
def test_rows_that_use_few_columns_are_a_block_of_their_own_where_it_pays(used, width, expected):
    rows = rows_of(range(len(used)), [num - width for num in used], [[0] * width for _ in used])
    assert [part.stop - part.start for part in rows.blocks()] == expected
