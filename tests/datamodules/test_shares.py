"""Who plays and trains on which packs, for any number of ranks; ranks are asked one after the other here."""

from types import SimpleNamespace

import pytest
import torch

from cod_lightning import ranks
from cod_lightning.errors import ConfigError
from cod_lightning.objective.batch import Batch, CreditTable
from datamodules import shares

G, U = 12, 2


@pytest.fixture(params=[1, 2, 3])
def number(request):
    return request.param


@pytest.fixture
def each_rank(monkeypatch, number):
    """Calls a function as every rank in turn; what ranks gather comes from `told`, a function of the rank."""

    def call(function, told=None):
        found = []
        for rank in range(number):
            for module in (ranks, shares):
                monkeypatch.setattr(module, "rank", lambda r=rank: r)
                monkeypatch.setattr(module, "num_ranks", lambda: number)
            monkeypatch.setattr(shares, "gathered", lambda _: [told(r) for r in range(number)])
            found.append(function(rank))
        return found

    return call


def packs():
    return [SimpleNamespace(id=f"pack {g}") for g in range(G)]


def table(first, count):
    """Every reward tells where it is from."""
    places = torch.arange(first, first + count).float()[:, None, None]
    return CreditTable(
        solve_rewards=places.expand(-1, 2, 2),
        update_rewards=places.expand(-1, 2, 1),
        valid=torch.ones(count, 2, 3, dtype=torch.bool),
        action_counts=torch.ones(count, 2, 3, dtype=torch.long),
    )


def test_an_update_trains_on_the_same_packs_whatever_the_number_of_ranks(each_rank, number):
    played = each_rank(lambda rank: [pack.id for pack in shares.own_packs(packs(), U)])
    size = G // U // number
    for update in range(U):
        together = [name for own in played for name in own[update * size : (update + 1) * size]]
        assert together == [f"pack {g}" for g in range(update * G // U, (update + 1) * G // U)]


def test_every_rank_sees_the_rewards_of_all_in_the_order_of_packs(each_rank, number):
    mine = each_rank(lambda rank: [int(pack.id.split()[1]) for pack in shares.own_packs(packs(), U)])

    def told(rank):
        parts = [table(g, 1) for g in mine[rank]]
        return CreditTable(**{name: torch.cat([getattr(p, name) for p in parts]) for name in vars(parts[0])})

    for whole in each_rank(lambda rank: shares.table_of_all(told(rank), U), told):
        assert whole.solve_rewards[:, 0, 0].tolist() == list(range(G))


def rows(index, lengths):
    lengths, width = torch.tensor(lengths), max(lengths)
    mask = torch.arange(width) < lengths[:, None]
    return Batch(
        token_ids=torch.where(mask, torch.arange(1, width + 1), 9),
        action_mask=mask,
        behaviour_logprobs=torch.where(mask, -0.5, 0.0),
        episode_index=torch.tensor([(g, 0, 0) for g in index]),
        policy_version=torch.zeros(len(index), dtype=torch.long),
        lengths=lengths,
        credit=table(0, G),
        num_action_tokens=int(mask.sum()),
    )


def test_the_rows_of_a_checkpoint_come_back_to_the_rank_that_they_are_of(each_rank, number):
    size = G // U // number

    def own(rank):  # the second update's rows
        index = range(G // U + rank * size, G // U + (rank + 1) * size)
        return rows(list(index), [1 + (5 * g) % 7 for g in index])

    wholes = each_rank(lambda rank: shares.batch_of_all(own(rank)), own)
    assert all(whole.num_action_tokens == sum(own(r).num_action_tokens for r in range(number)) for whole in wholes)
    for rank, back in enumerate(each_rank(lambda rank: shares.own_batch(wholes[0], U))):
        expected = own(rank)
        for name in ("token_ids", "action_mask", "behaviour_logprobs", "episode_index", "policy_version", "lengths"):
            assert torch.equal(getattr(back, name), getattr(expected, name)), name
        assert back.num_action_tokens == expected.num_action_tokens


@pytest.mark.parametrize(
    ("sizes", "remedy"),
    [
        ((32, 4, 3), r"data\.packs_per_rollout is 32; .*multiple of 12.* Set it to 24 or 36\."),
        ((32, 4, 16), r"multiple of 64.* Set it to 64, or data\.updates_per_rollout to 2\."),
        ((3, 1, 4), r"multiple of 4.* Set it to 4\."),
    ],
)
def test_a_rollout_that_does_not_divide_is_refused_with_the_nearest_that_does(sizes, remedy):
    with pytest.raises(ConfigError, match=remedy):
        shares.check_shares(*sizes)


def test_one_that_divides_passes():
    shares.check_shares(32, 4, 8)
