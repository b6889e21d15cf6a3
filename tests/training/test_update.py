"""What goes into an update: rows, denominators, packs without signal, micro-batches."""

from dataclasses import replace

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from cod_lightning.objective.losses import REC
from cod_lightning.training import update as of_update
from cod_lightning.training.update import plan_update, split_by_token_budget
from tests.cases import each
from tests.credit_tables import made_batch, plain_credit, stamped

G, K, E = 3, 2, 3


def batch(seed=0):
    """Two rows for the first episode of each lifecycle, one for the others."""
    rng = torch.Generator().manual_seed(seed)
    index = [(g, k, e) for g in range(G) for k in range(K) for e in (0, 0, 1, 2)]
    mask = torch.rand(len(index), 5, generator=rng) < 0.5
    mask[:, 1] = True
    g, k, e = torch.tensor(index).unbind(dim=1)
    own = {"episode": (g * K + k) * E + e, "siblings": g * E + e, "kinds": e % 2}
    return made_batch(torch.tensor(index), mask, **own)


def advantages():
    """The last pack has no signal, and the first none in its last episodes."""
    values = torch.arange(1.0, 1 + G * K * E).view(G, K, E)
    values[0, :, 2] = 0.0
    values[2] = 0.0
    return values


def plan(x, values, filter_packs=False, every_row=False):
    rows = stamped(plain_credit(values, filtered=filter_packs), x)
    return plan_update(rows, REC(), every_row=every_row)


def test_rows_of_zero_advantage_are_skipped_and_count_and_filtered_packs_leave_rows_and_denominators():
    x, values = batch(), advantages()
    found = plan(x, values)
    expected = [b for b, (g, k, e) in enumerate(x.place.tolist()) if values[g, k, e] != 0]
    assert found.rows.tolist() == expected
    assert found.num_action_tokens == int(x.action_mask.sum())
    assert found.num_episodes == G * K * E
    found = plan(x, values, filter_packs=True)
    assert found.rows.tolist() == expected
    of_pack = x.place[:, 0] < 2
    assert found.num_action_tokens == int(x.action_mask[of_pack].sum())
    assert found.num_episodes == 2 * K * E


@each("filter_packs", [False, True])
def test_every_row_is_taken_where_a_term_has_a_gradient_at_zero_advantage(filter_packs):
    x, values = batch(), advantages()
    there = [b for b, (g, _, _) in enumerate(x.place.tolist()) if g < 2 or not filter_packs]
    assert plan(x, values, every_row=True, filter_packs=filter_packs).rows.tolist() == there


@each("filter_packs", [False, True])
def test_episodes_without_a_known_advantage_are_in_no_row_and_in_no_denominator(filter_packs):
    x, values = batch(), advantages()
    known = torch.ones(G, K, E, dtype=torch.bool)
    known[0, 1, 1:] = False  # one lifecycle failed
    known[1] = False  # too few survivors
    credit = plain_credit(torch.where(known, values, 0.0), known, filtered=filter_packs)
    found = plan_update(stamped(credit, x), REC(), every_row=True)
    counted = [b for b, (g, k, e) in enumerate(x.place.tolist()) if known[g, k, e] and (g < 2 or not filter_packs)]
    assert found.rows.tolist() == counted
    assert found.num_action_tokens == int(x.action_mask[counted].sum())
    assert found.num_episodes == len({tuple(x.place[b].tolist()) for b in counted})


def test_where_tokens_have_advantages_of_their_own_an_episode_is_taken_with_all_of_its_rows():
    x = batch()
    by_token = x.action_mask.float() * (torch.arange(len(x)) == 1)[:, None]
    assert plan(replace(x, by_token=by_token), advantages()).rows.tolist() == [0, 1]


def test_a_row_without_actions_is_no_episode_and_when_no_pack_has_signal_nothing_is_left():
    x = batch()
    mask = x.action_mask.clone()
    mask[2] = False
    found = plan(replace(x, action_mask=mask), advantages())
    assert 2 not in found.rows.tolist()
    assert found.num_episodes == G * K * E - 1
    found = plan(batch(), advantages() * 0, filter_packs=True)
    assert len(found.rows) == found.num_action_tokens == found.num_episodes == 0


def test_rows_of_negative_advantages_alone_are_signal_as_those_of_positive_ones_are():
    for filter_packs in (False, True):
        up, down = (plan(batch(), sign * advantages(), filter_packs=filter_packs) for sign in (1, -1))
        assert len(up.rows) > 0
        assert torch.equal(up.rows, down.rows)
        assert up.num_action_tokens == down.num_action_tokens


def test_denominators_are_of_all_ranks(monkeypatch):
    x, alone = batch(), plan(batch(), advantages())
    monkeypatch.setattr(of_update, "gathered", lambda own: [(3, 2), own])  # a rank has three tokens in two episodes
    found = plan(x, advantages())
    assert found.num_action_tokens == alone.num_action_tokens + 3
    assert found.num_episodes == alone.num_episodes + 2


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
