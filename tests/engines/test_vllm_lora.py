"""Adapters served by real vLLM: in sync over 20 updates, every planted fault caught, quick to hand over. Run by `make vllm`."""

import asyncio
import os
import signal

import pytest
import torch

from cod_lightning.adapters import trained_weights
from cod_lightning.engines.base import Request
from cod_lightning.engines.self_test import SelfTest
from cod_lightning.engines.vllm import VLLMEngine
from cod_lightning.engines.vllm_server.engine import VLLMServerEngine
from cod_lightning.engines.vllm_server.process import LocalServers
from cod_lightning.errors import EngineFailure, EngineMismatch
from cod_lightning.models import LoRAPolicy
from tests.adapted import adapted, step

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
LEFT_OUT = "model.layers.1.mlp.down_proj.lora_B.default.weight"


IN_PROCESS, ON_A_SERVER = "in this process", "on a server"
in_process = pytest.mark.parametrize("started", [IN_PROCESS], indirect=True)
on_a_server = pytest.mark.parametrize("started", [ON_A_SERVER], indirect=True)


@pytest.fixture(scope="module", params=[IN_PROCESS, ON_A_SERVER])
def started(request, base, tmp_path_factory):
    """An engine and the model that it serves."""
    model = adapted(LoRAPolicy, base)
    engine = VLLMEngine()
    if request.param is ON_A_SERVER:
        engine = VLLMServerEngine(local=LocalServers(max_num_seqs=64, kv_cache_gb=0.25), sleep=True)
        engine.log_folder = tmp_path_factory.mktemp("logs")
    engine.bind(model, stop_ids=[2], window=256)
    yield engine, model
    if isinstance(engine, VLLMServerEngine):
        engine.close()


@pytest.fixture
def pair(started):
    """Synced and tested once, as a run does, and then a step away."""
    engine, model = started
    sync(engine, model)
    SelfTest()(engine, model, window=256)
    step(model, seed=5)
    return engine, model


def sync(engine, model):
    engine.update_weights(trained_weights(model).items(), engine.policy_version + 1)


def test_log_probs_stay_within_1e_4_of_the_training_forward_over_20_syncs(started):
    engine, model = started
    gaps = []
    for seed in range(20):
        step(model, seed, size=0.01)
        sync(engine, model)
        gaps.append(SelfTest()(engine, model, window=256).size)
    print(f"largest gap over 20 syncs of an adapter: {max(gaps):.1e}")
    assert 0 < max(gaps) <= 1e-4


@in_process
def test_an_adapter_id_that_is_used_again_is_caught(pair, monkeypatch):
    engine, model = pair
    request = engine._request
    monkeypatch.setattr(engine, "_request", lambda number, folder: request(number - 1, folder))
    monkeypatch.setattr(engine._driver.llm, "remove_lora", lambda number: None)
    sync(engine, model)
    with pytest.raises(EngineMismatch, match="its weights are not the trained ones"):
        SelfTest()(engine, model, window=256)


def test_a_projection_that_a_sync_leaves_as_it_was_is_caught(pair):
    engine, model = pair
    weights = trained_weights(model)
    weights |= {LEFT_OUT: torch.zeros_like(weights[LEFT_OUT])}
    engine.update_weights(weights.items(), engine.policy_version + 1)
    with pytest.raises(EngineMismatch, match="its weights are not the trained ones"):
        SelfTest()(engine, model, window=256)


@in_process
def test_a_prefix_cache_that_outlives_a_sync_is_caught(pair, monkeypatch):
    """With the id and name of the adapter before, loaded in place: vLLM tells prefixes of different names apart."""
    from vllm.lora.request import LoRARequest

    engine, model = pair

    def same(number, folder):
        return LoRARequest(f"sync-{number - 1}", number - 1, str(folder), load_inplace=True)

    monkeypatch.setattr(engine, "_request", same)
    monkeypatch.setattr(engine._driver.llm, "remove_lora", lambda number: None)
    sync(engine, model)
    SelfTest()(engine, model, window=256)  # in place and with prefixes forgotten: sound
    step(model, seed=6)
    monkeypatch.setattr(engine, "_forget_prefixes", lambda: None)
    sync(engine, model)
    with pytest.raises(EngineMismatch, match="went on from keys and values of earlier weights"):
        SelfTest()(engine, model, window=256)


def test_a_sync_of_part_of_an_adapter_is_refused(started):
    engine, model = started
    with pytest.raises(EngineFailure, match="weight sync left out"):
        engine.update_weights(list(trained_weights(model).items())[1:], 99)


@on_a_server
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
@on_a_server
def test_a_server_that_was_killed_gets_base_and_adapter_again(started):
    engine, model = started
    sync(engine, model)
    os.killpg(engine._fleet.servers[0].process._child.pid, signal.SIGKILL)
    asked = Request(dialogue="a", prompt_ids=[3, 7, 5], messages=(), max_new_tokens=5, noise_seed=3)
    assert asyncio.run(engine.generate(asked)).policy_version == engine.policy_version
    assert SelfTest()(engine, model, window=256).size <= 1e-4
