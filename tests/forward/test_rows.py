"""Rows of a pass: where their ids go, and which of them are fed as one rectangle."""

import pytest

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
        ([2, 5, 12, 13, 34, 35], [3, 2, 1]),
    ],
)
def test_similar_rows_share_a_rectangle(lengths, expected):
    rows = rows_of(range(len(lengths)), [0] * len(lengths), [[0] * length for length in lengths])
    assert [part.stop - part.start for part in rows.similar()] == expected
