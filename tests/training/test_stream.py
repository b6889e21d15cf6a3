"""Who plays and trains on which packs, for any number of ranks; ranks are asked one after the other here."""

from types import SimpleNamespace

import pytest
import torch

from cod_lightning import ranks
from cod_lightning.credit.table import facts_of
from cod_lightning.objective.batch import collate
from cod_lightning.rollout.runner import RolloutRunner
from cod_lightning.rollout.segments import segments_of
from cod_lightning.training import ahead, played, stream
from cod_lightning.training.packs import PackChoice
from cod_lightning.training.played import PlayedPack
from cod_lightning.types import Group, Lifecycle, Pack, Split
from tests import records
from tests.credit_tables import credit_table

G, U = 12, 2


@pytest.fixture(params=[1, 2, 3])
def number(request):
    return request.param


@pytest.fixture
def each_rank(monkeypatch, number):
    """Calls a function as every rank in turn; what ranks gather comes from `gathered_from`, a function of the rank."""

    def call(function, gathered_from=None):
        found = []
        for rank in range(number):
            for module in (ranks, stream, ahead):
                monkeypatch.setattr(module, "rank", lambda r=rank: r)
                monkeypatch.setattr(module, "num_ranks", lambda: number)
            for module in (played, stream, ahead):
                monkeypatch.setattr(module, "gathered", lambda _: [gathered_from(r) for r in range(number)])
            found.append(function(rank))
        return found

    return call


def solve(g, reward, length, **more):
    turn = records.turn(new_ids=(1,) * length, action_ids=(g,), logprobs=(-0.5,), policy_version=1)
    return records.episode(turns=(turn,), reward=reward, **more)


def group(g):
    """Two lifecycles of one episode; token, reward and attempts tell where they are from."""

    def life(k):
        beside = (solve(g, g + i / 10, 2, parent=0) for i in range(g % 3) if k == 0)
        return Lifecycle(pack_id=f"p{g}", sibling=k, episodes=(solve(g, float(g), 1 + 5 * g % 7), *beside))

    pack = Pack(id=f"p{g}", split=Split.TRAIN, world_seed=g, tasks=())
    return Group(pack=pack, lifecycles=(life(0), life(1)))


def rows(own, credit):
    return collate(segments_of(own), credit, {f"p{g}": g for g in range(G)}, pad_id=9)


def test_an_update_trains_on_the_same_packs_on_any_number_of_ranks_and_few_are_shared_out_as_far_as_they_go(
    each_rank, number
):
    size = G // U // number
    for owners in each_rank(lambda rank: ranks.owners(G, U)):
        assert owners == [r for r in range(number) for _ in range(size)] * U
    for owners in each_rank(lambda rank: ranks.owners(2, 1)):
        assert len(owners) == 2
        assert owners == sorted(owners)
        assert max(owners) < number


def test_every_rank_sees_the_rewards_and_attempts_of_all_in_the_order_of_packs(each_rank, number):
    places = [(5 * g) % number for g in range(G)]  # as replaced packs have them
    own = [[group(g) for g in range(G) if places[g] == rank] for rank in range(number)]
    expected = credit_table([group(g) for g in range(G)])

    def packs(rank):
        groups = [group(g) for g in range(G)]
        return [
            PlayedPack(PackChoice(g), groups[g].pack, places[g], groups[g] if places[g] == rank else None)
            for g in range(G)
        ]

    gathered_from = lambda rank: list(map(facts_of, own[rank]))  # noqa: E731
    for found in each_rank(lambda rank: played.table_of(packs(rank)), gathered_from):
        for name, value in vars(expected).items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(getattr(found, name), value), name


def test_the_rows_of_a_checkpoint_come_back_to_the_rank_that_they_are_of(each_rank, number):
    credit = credit_table([group(g) for g in range(G)])

    def own(rank):
        return rows([group(g) for g in range(G) if g % number == rank], credit)

    kept = each_rank(lambda rank: stream.batch_of_all(own(rank)), own)[0]
    for rank, back in enumerate(each_rank(lambda rank: stream.own_batch(*kept, number))):
        expected = own(rank)
        for name, value in vars(expected).items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(getattr(back, name).nan_to_num(), value.nan_to_num()), name


def test_rows_that_were_all_of_one_rank_are_so_again(each_rank, number):
    whole = rows([group(g) for g in range(G)], credit_table([group(g) for g in range(G)]))
    of_rank_0 = torch.zeros(len(whole), dtype=torch.long)
    found = each_rank(lambda rank: len(stream.own_batch(whole, of_rank_0, number)))
    assert found == [len(whole), *[0] * (number - 1)]


def test_another_number_of_ranks_shares_the_groups_of_a_checkpoint_out_anew(each_rank):
    whole = rows([group(g) for g in range(G)], credit_table([group(g) for g in range(G)]))
    for ranks_then in (5, 1):
        kept = whole.place[:, 0] % ranks_then
        then = (kept, ranks_then)
        parts = each_rank(lambda rank, then=then: stream.own_batch(whole, *then).place[:, 0].tolist())
        assert all(parts)
        assert sorted(g for part in parts for g in part) == sorted(whole.place[:, 0].tolist())
        assert all(set(one).isdisjoint(other) for one in parts for other in parts if one is not other)


def test_the_groups_that_wait_in_a_checkpoint_are_shared_out_as_those_of_rollouts_and_kept_in_their_order(
    each_rank, number
):
    kept = [{"choice": {"index": g}} for g in range(2 * G)]

    def restored(_):
        runner = RolloutRunner(SimpleNamespace(in_flight=True))  # pyright: ignore[reportArgumentType]
        found = ahead.RolloutsAhead(
            rollouts=SimpleNamespace(runner=runner, packs_per_rollout=G, num_shares=U, buffer=None)  # pyright: ignore
        )
        found.load_state_dict({"ahead": kept})
        return found

    own, size = [found._restored for found in each_rank(restored)], G // U
    assert own == [[kept[g] for g in range(2 * G) if g % size * number // size == rank] for rank in range(number)]
    assert each_rank(lambda rank: restored(rank).state_dict(), lambda rank: own[rank]) == [{"ahead": kept}] * number
