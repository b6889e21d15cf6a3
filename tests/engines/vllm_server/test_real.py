"""What only servers do: they are killed, keep prefixes, take weights in flight. Against real ones here; run by `make vllm`."""

import os
import signal
import threading
import time

import pytest
import torch

from cod_lightning.engines.self_test import SelfTest
from cod_lightning.engines.vllm_server.engine import VLLMServerEngine
from cod_lightning.engines.vllm_server.process import LocalServers
from cod_lightning.errors import EngineFailure, EngineMismatch
from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.segments import count_drift
from tests.engines.test_vllm import TINY, changed
from tests.word_play import ask, play, request

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def started(model, tmp_path_factory):
    engine = VLLMServerEngine(local=LocalServers(max_num_seqs=64, kv_cache_gb=0.25), sleep=False)
    engine.log_folder = tmp_path_factory.mktemp("logs")
    engine.bind(model, stop_ids=[2], window=256)
    yield engine
    engine.close()


@pytest.fixture
def engine(started, model):
    started.update_weights(model.state_dict().items(), policy_version=7)
    return started


def lifecycles(engine, tokenizer, num_packs=3):
    more = {"chat": Chat(tokenizer), "window": 256, "max_new_tokens": 40, "policy_version": 7}
    return play(engine, num_packs=num_packs, num_siblings=4, **more)


def test_the_self_test_sees_a_server_that_kept_its_prefixes_over_a_sync(engine, model, monkeypatch):
    test = SelfTest()
    assert test(engine, model, window=256).size <= 1e-4
    (server,) = engine._fleet.servers
    monkeypatch.setattr(
        server.client, "settle", lambda label: server.client.post("/update_weight_version", {"new_version": label})
    )
    kept = {n: t.clone() for n, t in model.state_dict().items()}
    try:
        model.load_state_dict(changed(model, 0.05, 1))
        engine.update_weights(model.state_dict().items(), 8)
        with pytest.raises(EngineMismatch, match=r"the vLLM server at .*keys and values of earlier weights"):
            test(engine, model, window=256)
    finally:
        model.load_state_dict(kept)


@pytest.mark.soak  # as all kills of what test_engine.py holds step by step
def test_a_server_killed_in_a_rollout_is_started_again_and_no_lifecycle_is_lost(engine, tokenizer):
    (server,) = engine._fleet.servers
    first = server.process._child.pid
    killer = threading.Timer(0.3, lambda: os.killpg(first, signal.SIGKILL))
    killer.start()
    groups = lifecycles(engine, tokenizer, num_packs=12)
    killer.join()
    assert server.process._child.pid != first
    assert not any(x.failed for g in groups for x in g.lifecycles)
    assert count_drift(groups) == 0
    assert engine.report().startswith("vLLM servers lost 1 times")


def test_weights_of_another_shape_are_refused_in_one_line_and_spoil_no_later_sync(engine, model):
    weights = dict(model.state_dict())
    weights["model.norm.weight"] = torch.ones(65)
    with pytest.raises(EngineFailure, match=r"no vLLM server took the weights: .*Size\(\[65\]\)"):
        engine.update_weights(weights.items(), 8)
    assert not engine._fleet.servers[0].process.alive  # vLLM keeps what it half took; the next sync starts it again


def test_turns_go_on_by_new_weights_and_each_log_prob_is_of_the_weights_that_sampled_the_token(tokenizer, tmp_path):
    model = TinyPolicy(**TINY | {"window": 1024}).model(tokenizer)
    of_version = {version: changed(model, 0.05, version) for version in range(1, 5)}
    wave = [request([3, 7, i], max_new_tokens=1000, noise_seed=i) for i in range(24)]
    asked, said, seconds, gaps, synced = [], [], [], [], threading.Event()
    engine = VLLMServerEngine(local=LocalServers(max_num_seqs=64, kv_cache_gb=0.25))
    engine.log_folder, engine.max_staleness = tmp_path, 2
    try:
        engine.bind(model, stop_ids=[], window=1024)
        engine.update_weights(of_version[1].items(), 1)

        def keep_asking():  # a sync that takes long to begin meets a later wave
            while not synced.is_set():
                said.extend(ask(engine, *wave))
                asked.extend(wave)

        turns = threading.Thread(target=keep_asking)
        turns.start()
        for version in range(2, 5):
            time.sleep(0.1)
            model.load_state_dict(of_version[version])
            begun = time.perf_counter()
            engine.update_weights(of_version[version].items(), version)
            seconds.append(time.perf_counter() - begun)
            assert SelfTest()(engine, model, window=1024).size <= 1e-4
        synced.set()
        turns.join()
    finally:
        engine.close()
    for weights in of_version.values():
        model.load_state_dict(weights)
        gaps.append(gap_by_token(model, asked, said))
    least, version = torch.stack(gaps).min(dim=0)
    num = engine.num_interrupted_turns
    print(f"largest gap {least.max():.1e}; slowest sync {max(seconds):.3f} s; {num} of {len(said)} turns went on")
    assert least.max() <= 1e-4
    assert [turn.policy_version for turn in said] == (1 + version.min(dim=1).values).tolist()
    assert num == int((version.min(dim=1).values < version.max(dim=1).values).sum()) > 0


def gap_by_token(model, asked, said):
    """[turns, tokens] between the log-probs of turns of one length and those of the model."""
    ids = torch.tensor([[*one.prompt_ids, *turn.action_ids] for one, turn in zip(asked, said, strict=True)])
    with torch.no_grad():
        at = torch.log_softmax(model(ids).logits[:, len(asked[0].prompt_ids) - 1 : -1], dim=-1)
    expected = at.gather(2, ids[:, len(asked[0].prompt_ids) :, None]).squeeze(2)
    return (torch.tensor([turn.behaviour_logprobs for turn in said]) - expected).abs()
