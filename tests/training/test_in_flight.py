"""Rollouts ahead with servers: weights change while turns are under way, and nothing is waited for, lost or counted twice."""

import time
from types import SimpleNamespace

import lightning as L
import pytest

from cod_lightning.callbacks.throughput import Throughput
from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.engines.vllm_server.engine import VLLMServerEngine
from cod_lightning.envs.base import Traits
from cod_lightning.modules.grpo import GRPOModule
from cod_lightning.rollout.runner import RolloutRunner
from cod_lightning.training.ahead import CompleteGroup, GroupKey, RolloutsAhead
from cod_lightning.training.packs import PackChoice, Uniform
from cod_lightning.types import Group, Lifecycle, Pack, Split
from tests import records
from tests.forked import on_two_ranks
from tests.small_fit import Updates, quiet_trainer, small_data, small_policy
from tests.stubs import Following, WordWorld
from tests.vllm_server import FakeVLLM

BOUND, NUM_ROLLOUTS = 3, 8


class Noting(Uniform):
    """The packs whose outcomes it is shown."""

    def __init__(self):
        self.seen = []

    def observe(self, outcomes):
        self.seen += [choice.index for choice in outcomes.choices]


@pytest.fixture
def server():
    """Takes 10 ms for a turn, and so longer for a rollout than an update takes."""
    fake = FakeVLLM()
    fake.after_s = 0.01
    yield fake
    fake.die()


def made(server, world=None, **more):
    sizes = {"group_size": 2, "packs_per_rollout": 2, "rollouts_per_epoch": 4, "seed": 3, "max_staleness": BOUND}
    engine = VLLMServerEngine(urls=[server.url])
    return small_data(engine, world or WordWorld(max_turns=2), source=Noting(), **sizes | more)


def fit(folder, data, *, more=(), **trainer):
    L.seed_everything(3, verbose=False)
    rows = Updates("")
    callbacks = (*more, Throughput(), WeightSync(self_test=None), rows)
    quiet_trainer(folder, *callbacks, **{"max_epochs": 2} | trainer).fit(GRPOModule(small_policy(), lr=1e-2), data)
    return rows.values


def test_syncs_interrupt_turns_which_are_counted_and_no_token_is_older_than_the_bound(server, tmp_path):
    data = made(server)
    rows = fit(tmp_path, data)
    firsts = rows[::2]
    assert sum(row["rollout/num_interrupted_turns"] for row in firsts) > 0
    assert [row["train/staleness"] <= min(number, BOUND) for number, row in enumerate(firsts)] == [True] * NUM_ROLLOUTS
    assert firsts[-1]["train/staleness_mean"] > 0
    assert data.packs.source.seen == list(range(2 * NUM_ROLLOUTS))
    assert server.calls["/pause"] == server.calls["/resume"] == server.calls["/collective_rpc"]
    assert not any(row["rollout/num_failed"] or row["rollout/token_drift"] for row in rows)


@pytest.mark.slow
def test_a_validation_plays_the_newest_weights_alone(server, tmp_path):
    data, found = made(server), []

    def played(label, groups):
        if label == "validation":
            turns = [turn for group in groups for life in group.lifecycles for turn in life.episodes[0].turns]
            found.append(({turn.policy_version for turn in turns}, data.engine.policy_version))

    data.runner.follow(Following(rollout_played=played))
    fit(tmp_path, data, val_check_interval=3)
    assert len(found) >= 4
    assert all(versions == {newest} for versions, newest in found)


@pytest.mark.slow
def test_a_checkpoint_waits_for_nothing_and_a_resumed_run_trains_on_every_pack_once(server, tmp_path):
    data, states = made(server), []
    data.runner.follow(Following(update_begins=lambda **_: states.append(data.state_dict())))
    fit(tmp_path, data, max_steps=6)
    flying = [[one["lines"] is None for one in state["rollouts"]["ahead"]] for state in states]
    under_way, complete = ([any(one is of for one in each) for each in flying] for of in (True, False))
    assert True in under_way
    assert True in complete
    for state in (states[under_way.index(True)], states[complete.index(True)], states[5]):
        again = made(server)
        again.load_state_dict(state)
        fit(tmp_path, again, max_steps=6)
        seen = state["stream"]["num_packs"]
        assert again.rollouts.packs.source.seen[: 2 * BOUND] == list(range(seen, seen + 2 * BOUND))


def test_of_two_ranks_each_keeps_what_is_complete_there_however_much_that_is(tmp_path):
    def act(rank):
        packs, runner = SimpleNamespace(source=Noting()), RolloutRunner(SimpleNamespace(in_flight=True))
        sizes = {"packs_per_rollout": 4, "num_shares": 2, "buffer": None}
        flying = RolloutsAhead(rollouts=SimpleNamespace(packs=packs, runner=runner, **sizes))
        for n in range(4):
            pack = Pack(id=f"p{n}", split=Split.TRAIN, world_seed=n, tasks=())
            group = Group(pack=pack, lifecycles=(Lifecycle(pack_id=pack.id, sibling=0, episodes=(records.episode(),)),))
            future = flying.groups.add(GroupKey(PackChoice(10 * rank + n), rollout=0))
            if n < 2 * (1 + rank):
                future.set_result(CompleteGroup(group, 1.0))
        return [(one["choice"]["index"], one["lines"] is not None) for one in flying.state_dict()["ahead"]]

    found = on_two_ranks(tmp_path, act)
    assert found[0] == found[1]
    assert found[0] == [(10 * rank + n, n < 2 * (1 + rank)) for n in range(4) for rank in range(2)]


class Straggling(WordWorld):
    """Whose pack 2 takes ten times as long."""

    traits = Traits(blocking=True)

    def step(self, action):
        time.sleep(0.3 if self.pack == 2 else 0.0)
        return super().step(action)

    def reset(self, *, seed=None, options=None):
        self.pack = int(options["task"].id.split(".")[0])
        return super().reset(options=options)


@pytest.mark.parametrize("in_order", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_straggler_holds_up_no_other_group_and_out_of_order_no_update_until_it_would_be_too_old(
    server, tmp_path, in_order
):
    server.after_s = 0.001
    data = made(server, world=Straggling(max_turns=2), in_order=in_order, rollouts_per_epoch=8)
    taken = []
    data.runner.follow(
        Following(rollout_played=lambda label, groups: taken.append([g.pack.world_seed for g in groups]))
    )
    rows = fit(tmp_path, data, max_epochs=1, limit_val_batches=0)
    trained = [pack for packs in taken for pack in packs]
    assert sorted(trained[:14]) == list(range(14)), "every pack is trained on once"
    straggler = next(number for number, packs in enumerate(taken) if 2 in packs)
    overtaken = [row["rollout/num_overtaken_groups"] for row in rows[::2]]
    if in_order:
        assert trained == list(range(16))
        assert overtaken == [0] * NUM_ROLLOUTS
    else:
        assert 1 < straggler <= BOUND
        assert overtaken[1] >= 1, "the straggler, and on a busy machine others"
    assert all(row["train/staleness"] <= BOUND for row in rows)
