"""Weights by NCCL from one and two ranks to servers, up to the wire: the broadcast is HTTP. Not yet run on a GPU."""

import copy
import threading
import weakref

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from cod_lightning.engines.base import Served
from cod_lightning.engines.vllm_server.engine import VLLMServerEngine
from cod_lightning.engines.vllm_server.nccl_supply import NCCLSupply
from cod_lightning.errors import ConfigError, EngineFailure
from cod_lightning.models import TinyPolicy
from cod_lightning.models.sharded import shard, whole_weights
from tests.forked import with_engines
from tests.nccl_wire import ReceivingVLLM, lay_wire
from tests.stubs import WordWorld

TINY = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 16, "window": 256}
BUCKET_BYTES = 2000


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    policy = TinyPolicy(**TINY)
    return policy.model(policy.tokenizer(WordWorld().words()))


@pytest.fixture(autouse=True)
def wire(monkeypatch):
    lay_wire(monkeypatch, BUCKET_BYTES)


@pytest.fixture
def two():
    servers = [ReceivingVLLM(), ReceivingVLLM()]
    yield servers
    for server in servers:
        server.die()


def engine_for(servers, model, folder, *, max_staleness=0, **kwargs):
    settings = {"weights_folder": str(folder / "weights"), "sync_timeout_s": 20.0, "max_retries": 0} | kwargs
    engine = VLLMServerEngine(urls=[server.url for server in servers], weights="nccl", **settings)
    engine.max_staleness = max_staleness
    engine.bind(model, stop_ids=[2], window=256)
    return engine


def has(server, weights, time=-1):
    found = server.received[time]
    return list(found) == list(weights) and all(torch.equal(found[name], weights[name]) for name in weights)


def test_a_server_is_sent_every_tensor_in_buckets_and_its_group_is_joined_once(two, model, tmp_path):
    engine = engine_for(two[:1], model, tmp_path)
    for version in (1, 2):
        engine.update_weights(model.state_dict().items(), version)
        assert two[0].version == engine.label
    engine.close()
    assert has(two[0], model.state_dict(), 0)
    assert has(two[0], model.state_dict(), 1)
    assert two[0].calls["/init_weight_transfer_engine"] == 1
    assert two[0].calls["/reset_prefix_cache"] == 2
    largest = max(tensor.nbytes for tensor in model.state_dict().values())
    assert len(two[0].chunk_bytes) > 4
    assert max(two[0].chunk_bytes) <= BUCKET_BYTES + largest


def test_a_server_over_several_gpus_has_a_rank_for_each_beside_the_one_that_sends(two, model, tmp_path):
    two[0].num_workers = 4
    engine = engine_for(two[:1], model, tmp_path)
    engine.update_weights(model.state_dict().items(), 1)
    engine.close()
    assert two[0].init_info["world_size"] == 5
    assert two[0].init_info["rank_offset"] == 1


@pytest.mark.slow
def test_a_server_that_was_started_again_is_met_anew(two, model, tmp_path):
    engine = engine_for(two, model, tmp_path)
    engine.update_weights(model.state_dict().items(), 1)
    two[1].die()
    with pytest.warns(UserWarning, match=f"left out until the next sync: {two[1].url} cannot be reached"):
        engine.update_weights(model.state_dict().items(), 2)
    two[1].come_back()
    engine.update_weights(model.state_dict().items(), 3)
    engine.close()
    assert [server.calls["/init_weight_transfer_engine"] for server in two] == [1, 2]
    assert [len(server.received) for server in two] == [3, 2]


def test_turns_that_may_go_on_stand_still_while_a_server_receives(two, model, tmp_path):
    engine = engine_for(two[:1], model, tmp_path, max_staleness=2)
    engine.update_weights(model.state_dict().items(), 1)
    engine.close()
    assert two[0].calls["/pause"] == two[0].calls["/resume"] == 1
    assert not two[0].held


def test_a_server_of_ours_that_fails_half_way_is_ended_to_be_started_again_and_its_group_is_left(two, model, tmp_path):
    class Process:
        alive, stops = True, 0

        def stop(self):
            self.stops += 1

    engine = engine_for(two, model, tmp_path)
    engine.update_weights(model.state_dict().items(), 1)
    server, process = engine._fleet.servers[1], Process()
    server.process, two[1].ends = process, (1, 2)
    with pytest.warns(UserWarning, match=f"left out until the next sync: {two[1].url} "):
        engine.update_weights(model.state_dict().items(), 2)
    assert process.stops == 1
    assert list(engine._supply._transfers) == [two[0].url]
    assert has(two[0], model.state_dict(), 1)
    engine.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda named: named[:-1], r"weight sync left out lm_head\.weight"),
        (lambda named: named[::-1], r"weight sync gave lm_head\.weight .*; servers were sent model\.embed_tokens"),
        (lambda named: [(n, t.half()) for n, t in named], r"gave model\.embed_tokens\.weight \(float16 .*\(float32 "),
        (lambda named: [*named, ("more", named[0][1])], r"gave more \(float32 .*; servers were sent none"),
    ],
)
def test_weights_that_are_not_those_that_servers_were_told_of_are_refused_in_one_line(
    change, said, two, model, tmp_path
):
    engine = engine_for(two[:1], model, tmp_path)
    with pytest.raises(EngineFailure, match=said) as raised:
        engine.update_weights(change(list(model.state_dict().items())), 1)
    assert "\n" not in str(raised.value)
    engine.close()
    assert not two[0].received


def test_a_server_that_takes_no_weights_by_nccl_is_refused_before_there_is_a_model(two):
    two[0].transfer = ""
    engine = VLLMServerEngine(urls=[two[0].url], weights="nccl")
    with pytest.raises(ConfigError, match=r"""Start it with --weight-transfer-config '\{"backend": "nccl"\}'"""):
        engine.check(Served())
    engine.check(Served(adapter_rank=4))  # which goes as files


def on_ranks(act, servers, model, folder, **kwargs):
    """What `act` returns on each of two ranks, given an engine that is bound and has no weights yet."""
    return with_engines(folder, lambda: engine_for(servers, model, folder, **kwargs), act)


def in_step(model):
    """Weights that all ranks have to ask for at the same time."""
    for name, tensor in model.state_dict().items():
        dist.barrier()
        yield name, tensor


def states(engine):
    return {server.url: (server.up, server.trouble) for server in engine._fleet.servers}


def test_both_ranks_send_at_the_same_time_each_to_its_own_servers(two, model, tmp_path):
    two[0].others = two[1].others = threading.Barrier(2)

    def sync_twice(engine):
        assert isinstance(engine._supply, NCCLSupply)
        for version in (1, 2):
            engine.update_weights(in_step(model), version)
        return states(engine)

    first, second = on_ranks(sync_twice, two, model, tmp_path)
    assert first == second == {server.url: (True, "") for server in two}
    assert [server.senders for server in two] == [{0}, {1}]
    assert all(has(server, model.state_dict(), time) for server in two for time in (0, 1))


@pytest.mark.slow
def test_a_rank_without_servers_takes_part_in_the_gather_alone(two, model, tmp_path):
    on_ranks(lambda engine: engine.update_weights(in_step(model), 1), two[:1], model, tmp_path)
    assert len(two[0].senders) == 1
    assert has(two[0], model.state_dict())


@pytest.mark.slow
def test_a_server_that_ends_half_way_is_lost_on_all_ranks_alike_and_the_other_has_the_weights(two, model, tmp_path):
    def at_a_later_sync(engine):
        engine.update_weights(in_step(model), 1)
        with pytest.warns(UserWarning, match="left out until the next sync"):
            engine.update_weights(in_step(model), 2)
        return states(engine)

    two[1].ends = (1, 2)
    first, second = on_ranks(at_a_later_sync, two, model, tmp_path)
    assert first == second
    assert first[two[0].url] == (True, "")
    up, trouble = first[two[1].url]
    assert not up
    assert two[1].url in trouble
    assert len(two[0].received) == 2
    assert len(two[1].received) == 1


@pytest.mark.slow
def test_a_server_that_stands_still_costs_itself_and_no_other_s_time_out(two, model, tmp_path):
    def at_the_first_sync(engine):
        with pytest.raises(EngineFailure, match=f"{two[1].url} stood still for 0.5 s while it was sent weights"):
            engine.update_weights(in_step(model), 1)
        return states(engine)

    two[1].released.clear()
    first, second = on_ranks(at_the_first_sync, two, model, tmp_path, sync_timeout_s=2.0)
    two[1].released.set()
    assert first == second
    assert first[two[0].url] == (True, "")
    assert has(two[0], model.state_dict())
    assert not two[1].received


@pytest.mark.slow
def test_shards_are_put_together_bucket_by_bucket_and_no_rank_holds_them_all(two, model, tmp_path):
    num_bytes = sum(tensor.nbytes for tensor in model.state_dict().values())

    def most_held(engine):
        sharded = copy.deepcopy(model)
        shard(sharded, init_device_mesh("cpu", (2,)))
        alive, most = {}, 0

        def counted():
            nonlocal most
            for name, tensor in whole_weights(sharded):
                alive[name] = tensor.nbytes
                weakref.finalize(tensor.untyped_storage(), alive.pop, name)
                most = max(most, sum(alive.values()))
                yield name, tensor
                del tensor

        engine.update_weights(counted(), 1)
        return most

    found = on_ranks(most_held, two[:1], model, tmp_path)
    assert has(two[0], model.state_dict())
    assert max(found) < 0.75 * num_bytes
