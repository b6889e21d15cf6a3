"""Laws of splitting by a token budget."""

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from cod_lightning.training.update import split_by_token_budget

ROWS = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 8)), max_size=40)


@example([(9, 0), (2, 0), (3, 1), (3, 2)], 27)  # the longest row of an episode is not its last
@given(ROWS, st.integers(1, 200))
def test_rows_are_split_within_the_budget_and_episodes_stay_together(rows, budget):
    lengths, keys = (torch.tensor([r[i] for r in rows], dtype=torch.long) for i in range(2))
    parts = split_by_token_budget(lengths, keys, budget)
    assert sorted(i for part in parts for i in part.tolist()) == list(range(len(rows)))
    homes = [{int(keys[i]) for i in part} for part in parts]
    assert sum(map(len, homes)) == len({r[1] for r in rows})
    for part, home in zip(parts, homes, strict=True):
        assert len(part) * int(lengths[part].max()) <= budget or len(home) == 1
    again = split_by_token_budget(lengths, keys, budget)
    assert [p.tolist() for p in parts] == [p.tolist() for p in again]


def test_rows_of_like_length_share_a_micro_batch_which_ends_where_long_ones_begin():
    lengths = torch.tensor([10, 2, 11, 3])
    parts = split_by_token_budget(lengths, torch.arange(4), 22)
    assert [sorted(lengths[p].tolist()) for p in parts] == [[2, 3], [10, 11]]
    lengths = torch.tensor([14] * 30 + [55] * 5)
    for budget, expected in ((4000, [[14] * 30, [55] * 5]), (8000, [[14] * 30 + [55] * 5])):
        parts = split_by_token_budget(lengths, torch.arange(35), budget)
        assert [lengths[p].tolist() for p in parts] == expected


@given(ROWS, st.integers(1, 200))
def test_at_most_a_quarter_of_the_budget_is_padding_between_episodes(rows, budget):
    lengths, keys = (torch.tensor([r[i] for r in rows], dtype=torch.long) for i in range(2))
    for part in split_by_token_budget(lengths, keys, budget):
        widths = {int(k): int(lengths[keys == k].max()) for k in keys[part]}
        assert sum(max(widths.values()) - widths[int(k)] for k in keys[part]) <= budget / 4


def test_a_large_budget_pads_between_episodes_no_more_than_one_of_16_384():
    lengths = torch.tensor([1000] * 8 + [1500] * 8 + [4000] * 8)
    parts = split_by_token_budget(lengths, torch.arange(24), 200_000)
    assert [sorted(set(lengths[part].tolist())) for part in parts] == [[1000, 1500], [4000]]
    assert len(split_by_token_budget(lengths, torch.arange(24), 16_384)) == 4
