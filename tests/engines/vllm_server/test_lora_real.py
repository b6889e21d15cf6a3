"""Adapters on a real vLLM server on this machine: handed over alone, and exact. Run by `make vllm`."""

import os
import signal
import time

import pytest

from cod_lightning.adapters import adapter_weights, plain_weights, trained_weights
from cod_lightning.engines.self_test import SelfTest
from cod_lightning.engines.vllm_server.engine import VLLMServerEngine
from cod_lightning.engines.vllm_server.guard import KEY
from cod_lightning.engines.vllm_server.process import LocalServers
from cod_lightning.errors import ConfigError, EngineMismatch
from cod_lightning.models import LoRAPolicy
from tests.adapted import adapted, step, write_base
from tests.engines.test_vllm import ask, request

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
LEFT_OUT = "model.layers.1.mlp.down_proj.lora_B.default.weight"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return write_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def started(base, tmp_path_factory):
    """An engine with a server of its own, and the model that it serves."""
    model = adapted(LoRAPolicy, base)
    how = LocalServers(max_num_seqs=64, kv_cache_gb=0.25)
    engine = VLLMServerEngine(local=how, sleep=True)
    engine.log_folder = tmp_path_factory.mktemp("logs")
    engine.bind(model, stop_ids=[2], window=256)
    yield engine, model
    engine.close()


def sync(engine, model):
    engine.update_weights(trained_weights(model).items(), engine.policy_version + 1)


def test_log_probs_stay_within_1e_4_of_the_training_forward_over_20_syncs(started):
    engine, model = started
    gaps, seconds = [], []
    for seed in range(20):
        step(model, seed, size=0.01)
        begun = time.perf_counter()
        sync(engine, model)
        seconds.append(time.perf_counter() - begun)
        gaps.append(SelfTest()(engine, model, window=256).size)
    print(f"largest gap over 20 syncs of an adapter: {max(gaps):.1e}; slowest sync {max(seconds):.3f} s")
    assert 0 < max(gaps) <= 1e-4


def test_a_projection_that_a_sync_leaves_as_it_was_is_caught(started):
    engine, model = started
    sync(engine, model)
    before = adapter_weights(model)[LEFT_OUT].detach().clone()
    step(model, seed=77)
    engine.update_weights((trained_weights(model) | {LEFT_OUT: before}).items(), engine.policy_version + 1)
    with pytest.raises(EngineMismatch, match="its weights are not the trained ones"):
        SelfTest()(engine, model, window=256)


def test_sleep_and_staged_wake_up_keep_the_base(started):
    engine, model = started
    sync(engine, model)
    engine.sleep()
    engine.wake("weights")
    step(model, seed=78)
    sync(engine, model)
    engine.wake("kv_cache")
    assert SelfTest()(engine, model, window=256).size <= 1e-4


@pytest.mark.soak
def test_a_server_that_was_killed_gets_base_and_adapter_again(started):
    engine, model = started
    sync(engine, model)
    os.killpg(engine._fleet.servers[0].process._child.pid, signal.SIGKILL)
    (said,) = ask(engine, request((3, 7, 5)))
    assert said.policy_version == engine.policy_version
    assert SelfTest()(engine, model, window=256).size <= 1e-4


def test_a_server_that_was_started_for_a_smaller_rank_is_refused(started, base, monkeypatch):
    engine, _ = started
    monkeypatch.setenv(KEY, engine._fleet.servers[0].client.key)
    larger = adapted(LoRAPolicy, base, rank=64)
    other = VLLMServerEngine(urls=[engine._fleet.servers[0].url])
    with pytest.raises(ConfigError, match=r"room for adapters of rank 64 .* not 8"):
        other.bind(larger, stop_ids=[2], window=256)
    other.close()


@pytest.mark.soak
def test_a_server_without_room_for_adapters_takes_merged_weights(base, tmp_path, monkeypatch):
    model = adapted(LoRAPolicy, base)
    engine = VLLMServerEngine(local=LocalServers(max_num_seqs=64, kv_cache_gb=0.25), merge_adapters=True)
    engine.log_folder = tmp_path
    engine.bind(model, stop_ids=[2], window=256)
    engine.update_weights(plain_weights(model, merge=True), 1)
    assert SelfTest()(engine, model, window=256).size <= 1e-4
    monkeypatch.setenv(KEY, engine._fleet.servers[0].client.key)
    other = VLLMServerEngine(urls=[engine._fleet.servers[0].url])
    with pytest.raises(ConfigError, match=r"room for adapters of rank 4 .* not 0"):
        other.bind(model, stop_ids=[2], window=256)
    other.close()
    engine.close()
