"""The engine for vLLM servers against servers that say what vLLM says; against vLLM itself: test_vllm_server_real.py."""

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest
import torch.distributed as dist

from cod_lightning.adapters import adapter_weights
from cod_lightning.engines.base import Request, Served, digest
from cod_lightning.engines.vllm_folder import WeightFolder
from cod_lightning.engines.vllm_server import fleet
from cod_lightning.engines.vllm_server.client import ServerClient, ServerLost
from cod_lightning.engines.vllm_server.engine import VLLMServerEngine
from cod_lightning.errors import ConfigError, EngineFailure, EngineRefused
from cod_lightning.models import LoRAPolicy
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.segments import count_drift
from tests.adapted import adapted, write_base
from tests.forked import with_engines
from tests.vllm_server import FakeVLLM
from tests.word_play import ask, play

TINY = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 16, "window": 256}


@pytest.fixture
def two():
    servers = [FakeVLLM(), FakeVLLM()]
    yield servers
    for server in servers:
        server.die()


def engine_for(servers, model, tmp_path, *, version=1, max_staleness=0, **kwargs):
    settings = {"weights_folder": str(tmp_path), "timeout_s": 10.0, "return_s": 5.0} | kwargs
    engine = VLLMServerEngine(urls=[server.url for server in servers], **settings)
    engine.max_staleness = max_staleness
    engine.bind(model, stop_ids=[2], window=256)
    if version is not None:
        engine.update_weights(model.state_dict().items(), version)
    for server in servers:
        server.prompts.clear()
    return engine


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """A lost server is tried again soon."""
    monkeypatch.setattr(fleet, "_PAUSE_S", 0.05)


@pytest.fixture
def engine(two, model, tmp_path):
    made = engine_for(two, model, tmp_path)
    yield made
    made.close()


@pytest.fixture
def only(model, tmp_path):
    """Makes an engine with these settings of a server of its own; gives both."""
    made = []

    def make(**settings):
        server = FakeVLLM()
        made.append((server, engine_for([server], model, tmp_path, **settings)))
        return made[-1]

    yield make
    for server, engine in made:
        engine.close()
        server.die()


def request(dialogue="a", ids=(3, 7, 5), **kwargs) -> Request:
    kwargs = {"max_new_tokens": 4, "noise_seed": 3} | kwargs
    return Request(dialogue=dialogue, prompt_ids=ids, messages=(), **kwargs)


def lifecycles(engine, tokenizer, num_packs=2, num_siblings=2):
    more = {"chat": Chat(tokenizer), "window": 256, "max_new_tokens": 8, "policy_version": 1}
    return play(engine, num_packs=num_packs, num_siblings=num_siblings, **more)


def test_a_turn_is_ids_in_and_ids_out_with_their_log_probs_and_version(engine):
    (said,) = ask(engine, request())
    assert len(said.action_ids) == len(said.behaviour_logprobs) == 4
    assert set(said.behaviour_logprobs) == {-1.5}
    assert said.policy_version == 1
    assert said.prompt_digest == digest([3, 7, 5])


def test_a_dialogue_stays_with_the_server_that_holds_its_prefix_and_both_have_work(engine, two):
    for turn in range(3):
        ask(engine, *(request(f"d{i}", ids=(3, 10 + i, *range(turn))) for i in range(8)))
    first, second = ({prompt[1] for prompt in server.prompts} for server in two)
    assert not first & second
    assert len(first) == len(second) == 4


def test_lifecycles_over_two_servers_are_exact_and_no_sample_depends_on_which_gave_it(engine, tokenizer, two):
    groups = lifecycles(engine, tokenizer)
    assert not any(x.failed for g in groups for x in g.lifecycles)
    assert count_drift(groups) == 0
    before = ask(engine, *(request(f"d{i}", noise_seed=i) for i in range(6)))
    two[1].die()
    after = ask(engine, *(request(f"d{i}", noise_seed=i) for i in range(6)))
    assert before == after


def test_every_server_gets_all_weights_by_name_and_gives_up_its_prefixes_at_each_sync(engine, two, model, tmp_path):
    two[0].prefix_cache_stuck = 2  # so often it gives them up late
    engine.update_weights(model.state_dict().items(), 2)
    for server, num_resets in zip(two, (4, 2), strict=True):
        assert server.loaded == [frozenset(model.state_dict())] * 2
        assert server.calls["/reset_prefix_cache"] == num_resets
        assert server.version == engine.label
    assert engine.label.endswith(":2")
    assert len(list(tmp_path.rglob("model.safetensors"))) == 1, "those of the sync before are removed"
    engine.close()
    assert not list(tmp_path.iterdir())


def test_a_server_that_dies_in_a_rollout_loses_no_lifecycle(engine, two, tokenizer):
    two[0].dies_with_turn = True
    groups = lifecycles(engine, tokenizer)
    assert not any(x.failed for g in groups for x in g.lifecycles)
    assert count_drift(groups) == 0
    assert "lost 1 times" in engine.report()
    assert f"{two[0].url} cannot be reached" in engine.report()


def test_a_server_that_comes_back_with_other_weights_gets_the_right_ones_before_it_serves(engine, two):
    two[1].die()
    two[0].after_s = 0.05
    two[1].come_back()
    ask(engine, *(request(f"d{i}") for i in range(4)))
    assert two[1].version in ("default", engine.label)
    two[0].die()
    said = ask(engine, *(request(f"e{i}") for i in range(4)))
    assert len(said) == 4
    assert two[1].version == engine.label
    assert len(two[1].loaded) == 2


def test_a_run_ends_with_one_message_when_no_server_comes_back(only):
    server, engine = only(return_s=0.3)
    server.die()
    with pytest.raises(EngineRefused, match=r"no vLLM server came back within 0\.3 s \(data\.engine\.return_s\)"):
        ask(engine, request())


@pytest.mark.parametrize(
    ("status", "said"), [(500, "3 vLLM servers were lost with this turn"), (400, "answered HTTP 400: it broke")]
)
def test_a_turn_that_kills_every_server_or_is_denied_fails_alone(engine, two, status, said):
    two[0].status = two[1].status = status
    (failure,) = ask(engine, request(), return_exceptions=True)
    assert isinstance(failure, EngineFailure)
    assert said in str(failure)
    two[0].status = two[1].status = 0
    assert ask(engine, request())[0].action_ids


def test_a_slow_server_costs_the_turn_its_deadline_and_no_more(only):
    server, engine = only(timeout_s=0.2)
    server.after_s = 0.6
    (failure,) = ask(engine, request(), return_exceptions=True)
    assert isinstance(failure, EngineFailure)
    assert "gave no answer within 0.2 s (data.engine.timeout_s)" in str(failure)


def test_no_more_turns_are_in_flight_at_a_server_than_asked_for(only):
    server, engine = only(max_concurrent=3)
    server.after_s, server.most_in_flight = 0.02, 0
    ask(engine, *(request(f"d{i}") for i in range(12)))
    assert server.most_in_flight == 3


def test_another_run_s_weights_of_the_same_version_are_noticed(two, model, tmp_path):
    ours = engine_for(two[:1], model, tmp_path)
    theirs = engine_for(two[:1], model, tmp_path)
    assert ours.label != theirs.label
    assert ask(ours, request())[0].action_ids
    assert two[0].version == ours.label  # it took the server back, and says that it lost it
    assert "lost 1 times" in ours.report()
    ours.close()
    theirs.close()


def test_weights_do_not_change_under_a_turn_in_flight(engine, two, model):
    two[0].after_s = two[1].after_s = 0.2

    async def change_meanwhile():
        task = asyncio.create_task(engine.generate(request()))
        await asyncio.sleep(0.02)
        with pytest.raises(EngineFailure, match="1 turns are in flight"):
            engine.update_weights(model.state_dict().items(), policy_version=8)
        await task

    asyncio.run(change_meanwhile())


@pytest.fixture
def in_flight(two, model, tmp_path):
    made = engine_for(two, model, tmp_path, max_staleness=2)
    yield made
    made.close()


def ask_and_change(engine, two, model, version):
    """What turns say during which the weights change."""
    two[0].after_s = two[1].after_s = 0.2

    async def change_meanwhile():
        asked = [asyncio.create_task(engine.generate(request(f"d{i}"))) for i in range(4)]
        while two[0].in_flight + two[1].in_flight < 4:
            await asyncio.sleep(0.002)
        await asyncio.to_thread(engine.update_weights, model.state_dict().items(), version)
        return await asyncio.gather(*asked)

    return asyncio.run(change_meanwhile())


def test_turns_go_on_by_new_weights_where_they_may_and_carry_the_oldest_version_and_are_counted(in_flight, two, model):
    assert [turn.policy_version for turn in ask_and_change(in_flight, two, model, 2)] == [1] * 4
    assert in_flight.num_interrupted_turns == 4
    assert [turn.policy_version for turn in ask(in_flight, *(request(f"d{i}") for i in range(4)))] == [2] * 4
    assert in_flight.num_interrupted_turns == 4
    assert not in_flight.report()
    assert [server.calls["/pause"] for server in two] == [server.calls["/resume"] for server in two] == [2, 2]


def test_a_turn_that_begins_after_a_sync_by_weights_before_it_is_thrown_away(in_flight, two, model):
    in_flight.update_weights(model.state_dict().items(), 2)
    two[0].version = two[1].version = in_flight._label(1)
    assert [turn.policy_version for turn in ask(in_flight, request())] == [2]
    assert "lost 2 times" in in_flight.report()


def test_a_server_that_does_not_take_the_weights_breaks_off_its_turns_which_move(in_flight, two, model):
    two[0].most_loads = 1
    # the refusal, or what it does to a turn, whichever is noticed first
    left_out = (
        f"left out until the next sync: ({two[0].url} answered HTTP 500|a vLLM server ended the request with 'abort')"
    )
    with pytest.warns(UserWarning, match=left_out):
        said = ask_and_change(in_flight, two, model, 2)
    assert {turn.policy_version for turn in said} <= {1, 2}
    assert two[0].version == "failed"
    assert not two[0].held
    assert len(two[1].prompts) == 4


def test_a_server_that_is_gone_at_a_later_sync_is_left_out_with_a_warning(engine, two, model):
    two[1].die()
    with pytest.warns(UserWarning, match=f"left out until the next sync: {two[1].url} cannot be reached"):
        engine.update_weights(model.state_dict().items(), 2)
    ask(engine, *(request(f"d{i}") for i in range(4)))
    two[1].come_back()
    engine.update_weights(model.state_dict().items(), 3)
    assert two[1].version == engine.label


def test_a_server_that_was_gone_at_a_sync_of_the_same_version_has_not_the_weights_of_that(engine, two, model):
    """`test` of two checkpoints: each has its policy's version, which may be one."""
    before = engine.label
    two[1].die()
    with pytest.warns(UserWarning, match="left out until the next sync"):
        engine.update_weights(model.state_dict().items(), 1)
    two[1].come_back()
    two[1].version = before  # unplugged, and not started again
    two[0].die()
    assert ask(engine, request())[0].policy_version == 1
    assert two[1].version == engine.label != before
    assert len(two[1].loaded) == 2


def test_a_server_that_is_gone_when_the_others_fall_asleep_or_wake_is_left_out_as_at_a_sync(two, model, tmp_path):
    engine = engine_for(two, model, tmp_path, sleep=True)
    for version, when in ((2, 0), (3, 1)):
        steps = [engine.sleep, lambda: engine.wake("weights")]
        steps.insert(when, two[1].die)
        for step in steps:
            step()
        with pytest.warns(UserWarning, match=f"left out until the next sync: {two[1].url} cannot be reached"):
            engine.update_weights(model.state_dict().items(), version)
        engine.wake("kv_cache")
        assert ask(engine, request())[0].policy_version == version
        two[1].come_back()
        engine.update_weights(model.state_dict().items(), version)
    engine.close()


@pytest.mark.slow
def test_a_server_that_the_system_does_not_start_again_is_tried_now_and_then_and_the_cause_is_said(
    two, model, tmp_path, monkeypatch
):
    engine, tries = engine_for(two, model, tmp_path, return_s=0.5), []

    def refused(server):
        tries.append(server.url)
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(engine._fleet, "_bring_back", refused)
    for server in two:
        server.die()
    with pytest.raises(EngineRefused, match="Too many open files"):
        ask(engine, request())
    assert len(tries) < 50
    engine.close()


def test_a_server_that_a_sync_brings_back_while_a_try_fails_is_in_no_trouble(engine, monkeypatch):
    """By its trouble other ranks know whether it is up."""
    server, troubles = engine._fleet.servers[0], []

    def meanwhile(server):
        troubles.append(server.trouble)
        if len(troubles) == 1:
            server.serve()
            raise ServerLost("it was gone")

    monkeypatch.setattr(engine._fleet, "_bring_back", meanwhile)
    server.lose("it does not answer")
    asyncio.run(engine._fleet._bring(server))
    assert troubles == ["it does not answer", ""]


def test_turns_wait_for_the_only_server_where_it_was_gone_at_a_later_sync(only, model):
    server, engine = only()
    server.die()
    with pytest.warns(UserWarning, match=f"left out until the next sync: {server.url} cannot be reached"):
        engine.update_weights(model.state_dict().items(), 2)
    assert engine.replicas() == []
    back = threading.Timer(0.3, server.come_back)
    back.start()
    (said,) = ask(engine, request())
    back.join()
    assert said.policy_version == 2
    assert server.version == engine.label


def test_the_self_test_asks_every_server(engine, two):
    replicas = engine.replicas()
    assert [str(r) for r in replicas] == [f"the vLLM server at {server.url}" for server in two]
    for replica, server in zip(replicas, two, strict=True):
        server.prompts.clear()
        asyncio.run(replica.generate(request("self-test")))
        replica.release("self-test")
        assert server.prompts == [(3, 7, 5)]


def with_shared(act, servers, model, folder):
    """What `act` returns on each of two ranks, given an engine that is bound and has no weights yet."""
    return with_engines(folder, lambda: engine_for(servers, model, folder / "weights", version=None), act)


def test_two_ranks_share_servers_each_begins_at_another_and_rank_0_brings_them_the_weights(two, model, tmp_path):
    def sync_twice(engine):
        engine.update_weights(model.state_dict().items(), 1)
        engine.update_weights(model.state_dict().items(), 2)
        (said,) = ask(engine, request())
        return [one.url for one in engine._servers], engine.label, said.action_ids

    (first, *of_first), (second, *of_second) = with_shared(sync_twice, two, model, tmp_path)
    assert of_first == of_second
    assert first == second[::-1] == [server.url for server in two]
    for server in two:
        assert server.version == of_first[0]
        assert server.calls["/collective_rpc"] == 2
        assert server.loaded == [frozenset(model.state_dict())] * 2


def test_weights_do_not_change_under_a_turn_that_another_rank_waits_for(two, model, tmp_path):
    def with_a_turn_on_rank_1(engine):
        engine._live.update(range(dist.get_rank()))
        with pytest.raises(EngineFailure, match="1 turns are in flight; weights change only between rollouts"):
            engine.update_weights(model.state_dict().items(), 1)
        return engine.policy_version

    assert with_shared(with_a_turn_on_rank_1, two[:1], model, tmp_path) == [-1, -1]
    assert two[0].calls["/collective_rpc"] == 0


def test_all_ranks_hear_that_a_shared_server_did_not_take_the_weights(two, model, tmp_path):
    def at_a_later_sync(engine):
        engine.update_weights(model.state_dict().items(), 1)
        with pytest.raises(EngineFailure, match=f"no vLLM server took the weights: {two[0].url}"):
            engine.update_weights(model.state_dict().items(), 2)

    two[0].most_loads = 1
    with_shared(at_a_later_sync, two[:1], model, tmp_path)


def test_turns_of_all_ranks_wait_for_a_shared_server_that_was_gone_at_a_later_sync(two, model, tmp_path):
    def lost(*args, **kwargs):
        raise ServerLost("unplugged")

    def gone_meanwhile(engine):
        engine.update_weights(model.state_dict().items(), 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine._fleet.servers[0].client, "_ask", lost)
            with pytest.warns(UserWarning, match="left out until the next sync"):
                engine.update_weights(model.state_dict().items(), 2)
        (said,) = ask(engine, request())
        return said.policy_version

    assert with_shared(gone_meanwhile, two[:1], model, tmp_path) == [2, 2]


@pytest.mark.slow
def test_a_rank_brings_a_shared_server_that_came_back_the_weights_that_rank_0_wrote(two, model, tmp_path):
    def losing_it_on_rank_1(engine):
        engine.update_weights(model.state_dict().items(), 1)
        if dist.get_rank() == 1:
            engine._fleet.servers[0].client.settle("default")  # as after a start
            (said,) = ask(engine, request())
            return len(said.action_ids)
        return 0

    assert with_shared(losing_it_on_rank_1, two[:1], model, tmp_path) == [0, 4]
    assert two[0].calls["/collective_rpc"] == 2


@pytest.mark.slow
def test_weights_stay_where_they_are_while_another_rank_still_brings_a_server_those(two, model, tmp_path):
    def late_on_rank_1(engine):
        engine.update_weights(model.state_dict().items(), 1)
        found, (server,) = [], engine._fleet.servers
        load, loads = server.client.load, threading.Event()

        def slow(folder, label):
            loads.set()
            time.sleep(0.5)
            found.append(Path(folder).is_dir())
            load(folder, label)

        if dist.get_rank() == 1:
            server.client.settle("default")
            server.client.load = slow
            bringing = threading.Thread(target=engine._supply.bring_back, args=(server,))
            bringing.start()
            assert loads.wait(timeout=10)
        engine.update_weights(model.state_dict().items(), 2)
        if dist.get_rank() == 1:
            bringing.join()
        return found

    assert with_shared(late_on_rank_1, two[:1], model, tmp_path) == [[], [True]]


@pytest.fixture
def started(monkeypatch):
    """Servers that were started as processes of this machine, in their order."""
    made = []

    class Starting(FakeVLLM):
        """Takes a while to start."""

        alive, num_stops = True, 0

        def __init__(self, how, *, key, **options):
            super().__init__()
            self.key = key
            made.append(self)

        def start(self, model=None):
            pass

        def wait(self, healthy):
            while not healthy():
                time.sleep(0.01)

        def stop(self):
            self.num_stops += 1

    monkeypatch.setattr("cod_lightning.engines.vllm_server.engine.ServerProcess", Starting)
    monkeypatch.setattr("cod_lightning.engines.vllm_server.engine.check_local", lambda num, how: None)
    yield made
    for server in made:
        server.die()


def test_a_sync_waits_for_a_server_that_was_started_again_a_moment_ago(started, model, tmp_path):
    engine = engine_for([], model, tmp_path, start=1)
    (process,) = started
    process.die()
    threading.Timer(0.3, process.come_back).start()
    engine.update_weights(model.state_dict().items(), 2)
    assert (process.version, process.num_stops) == (engine.label, 0)
    engine.close()


@pytest.fixture(scope="module")
def with_adapter(tmp_path_factory):
    return adapted(LoRAPolicy, write_base(tmp_path_factory.mktemp("base")))


@pytest.fixture
def roomy():
    server = FakeVLLM(adapter_rank=16)
    yield server
    server.die()


def test_a_sync_of_an_adapter_sends_the_adapter_alone_by_a_new_name_each_time(roomy, with_adapter, tmp_path):
    engine = engine_for([roomy], with_adapter, tmp_path, version=None)
    for version in (1, 2):
        engine.update_weights(adapter_weights(with_adapter).items(), version)
        assert list(roomy.adapters) == [engine.label]
    (said,) = ask(engine, request())
    assert len(said.action_ids) == 4
    assert roomy.calls["/collective_rpc"] == 0
    assert roomy.calls["/reset_prefix_cache"] == 2
    assert len(roomy.adapters[engine.label]) == len(adapter_weights(with_adapter))
    roomy.die()
    roomy.come_back()
    (said,) = ask(engine, request())
    assert len(said.action_ids) == 4
    assert list(roomy.adapters) == [engine.label], "it gets the adapter before it serves"
    weights = adapter_weights(with_adapter)
    left_out, _ = weights.popitem()
    with pytest.raises(EngineFailure, match=f"left out .*{left_out}"):
        engine.update_weights(weights.items(), 3)


def test_an_adapter_is_taken_again_at_a_sync_of_the_same_version_and_after_a_try_that_failed_halfway(
    roomy, with_adapter, tmp_path, monkeypatch
):
    """`test` of two checkpoints: each has its policy's version, which may be one."""
    engine = engine_for([roomy], with_adapter, tmp_path, version=None, sync_timeout_s=2.0)
    for _ in range(2):
        engine.update_weights(adapter_weights(with_adapter).items(), 1)
        assert list(roomy.adapters) == [engine.label]
    monkeypatch.setattr("cod_lightning.engines.vllm_server.client._RESET_S", 0.0)
    roomy.prefix_cache_stuck = 2
    with pytest.raises(EngineFailure, match="does not give up its prefix cache"):
        engine.update_weights(adapter_weights(with_adapter).items(), 2)
    (said,) = ask(engine, request())
    assert (said.policy_version, list(roomy.adapters), roomy.version) == (2, [engine.label], engine.label)


START = "VLLM_SERVER_DEV_MODE=1 python -m vllm.entrypoints.openai.api_server"


@pytest.mark.parametrize(
    ("fault", "is_bound", "said"),
    [
        ({"dev_mode": False}, False, ("development mode", START)),
        ({"window": "wide"}, False, ("development mode", START)),
        ({"scale_out": False}, False, ("--enable-scale-out", START)),
        ({"logprobs_mode": "raw_logprobs"}, False, ("processed_logprobs", START)),
        ({"window": 128}, True, ("at least 256 (model.policy.window), not 128",)),
        ({"dtype": "torch.bfloat16"}, True, ("servers of one precision",)),
        ({"adapter_rank": 2}, True, ("room for adapters of rank 4 (model.policy.rank), not 2", "--max-lora-rank 4")),
        ({"adapter_rank": 0}, True, ("not 0", "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1")),
        ({}, False, ("a vLLM server that answers",)),
    ],
)
def test_a_server_that_does_not_suit_is_refused_with_the_remedy_and_without_the_key(
    fault, is_bound, said, with_adapter, tmp_path, monkeypatch
):
    monkeypatch.setenv("VLLM_API_KEY", "hush-hush")
    sound, server = FakeVLLM(adapter_rank=16), FakeVLLM(adapter_rank=16)
    for name, value in fault.items():
        setattr(server, name, value)
    if not fault:
        server.die()

    def refuse():
        if is_bound:
            engine_for([sound, server], with_adapter, tmp_path, version=None)
        else:  # before there is a model
            VLLMServerEngine(urls=[server.url]).check(Served())

    with pytest.raises(ConfigError) as raised:
        refuse()
    assert all(part in str(raised.value) for part in (server.url, *said))
    assert "hush" not in str(raised.value)
    for one in (server, sound):
        one.die()


def test_servers_that_a_killed_run_left_asleep_or_with_turns_held_serve_the_next_one(two, model, tmp_path):
    two[0].held = two[1].asleep = True
    engine = engine_for(two, model, tmp_path, sync_timeout_s=2.0)
    assert len(ask(engine, *(request(str(n)) for n in range(4)))) == 4
    assert (two[0].held, two[1].asleep) == (False, False)


def test_a_server_that_is_started_here_gets_a_key_of_its_own_and_every_call_brings_it(
    started, monkeypatch, model, tmp_path
):
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    elsewhere = FakeVLLM()
    for _ in range(2):
        engine = engine_for([elsewhere], model, tmp_path, start=1)
        answers = ask(engine, request("a"), request("b"))
        assert len(answers) == 2
        assert elsewhere.prompts == started[-1].prompts[-1:] == [(3, 7, 5)]
        engine.close()
    assert len(started[0].key) >= 32
    assert started[0].key != started[1].key
    stranger = ServerClient(started[-1].url, "", 5.0)
    assert not stranger.healthy()
    for route in ("/collective_rpc", "/sleep?level=1", "/update_weight_version"):
        with pytest.raises(EngineFailure, match="HTTP 401"):
            stranger.post(route)
    elsewhere.die()


def test_weights_in_a_folder_of_ones_own_choice_can_be_read_by_servers_of_others_whatever_the_umask(tmp_path, model):
    before = os.umask(0o077)
    try:
        folder = WeightFolder(str(tmp_path))
        written = folder.write(model, model.state_dict().items(), "run:1")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (folder.root, written)} == {0o755}
    assert {path.stat().st_mode & 0o777 for path in written.iterdir()} == {0o644}
    folder.close()


def test_weights_in_shared_memory_are_for_this_user_alone(tmp_path, model, monkeypatch):
    monkeypatch.setattr("cod_lightning.engines.vllm_folder.memory_folder", lambda: str(tmp_path))
    own, shared = WeightFolder(), WeightFolder(str(tmp_path / "shared"))
    assert own.root.stat().st_mode & 0o777 == 0o700
    assert shared.root.stat().st_mode & 0o777 == 0o755
    own.close()
    shared.close()
