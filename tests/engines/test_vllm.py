"""Real vLLM on this machine, in this process and on a server of its own, against the plain forward pass. Run by `make vllm`."""

import asyncio
import random

import pytest
import torch

from cod_lightning.engines.base import Request, digest
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.engines.vllm import VLLMEngine
from cod_lightning.engines.vllm_server.engine import VLLMServerEngine
from cod_lightning.engines.vllm_server.process import LocalServers
from cod_lightning.errors import ConfigError, EngineFailure, EngineRefused
from cod_lightning.models import TinyPolicy
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.segments import segments_of
from cod_lightning.types import StopReason
from tests.word_play import ask, play, reference_logprobs, request, see_exact

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
TINY = {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 64, "window": 256}
PROMPT = [3, 7, 5]
IN_PROCESS, ON_A_SERVER = "in this process", "on a server"
in_process = pytest.mark.parametrize("started", [IN_PROCESS], indirect=True)


@pytest.fixture(scope="module", params=[IN_PROCESS, ON_A_SERVER])
def started(request, model, tmp_path_factory):
    if request.param is IN_PROCESS:
        engine = VLLMEngine(max_num_seqs=64, sleep=True)
    else:
        engine = VLLMServerEngine(local=LocalServers(max_num_seqs=64, kv_cache_gb=0.25), sleep=True)
        engine.log_folder = tmp_path_factory.mktemp("logs")
    engine.bind(model, stop_ids=[2], window=256)
    yield engine
    if isinstance(engine, VLLMServerEngine):
        engine.close()


@pytest.fixture
def engine(started, model):
    started.update_weights(model.state_dict().items(), policy_version=7)
    return started


def prompts(num, seed=0):
    """Prompts of 1 to 240 tokens, the even ones with a first half in common."""
    drawn = random.Random(seed)
    shared = [drawn.randrange(46) for _ in range(120)]
    return [
        (shared if i % 2 == 0 else []) + [drawn.randrange(46) for _ in range(drawn.randint(1, 120))] for i in range(num)
    ]


def gap(model, ids, completion, temperature=1.0) -> float:
    """Largest difference between a completion's log-probs and those of the model."""
    at = reference_logprobs(model, [*ids, *completion.action_ids], temperature)[len(ids) - 1 : -1]
    expected = at.gather(1, torch.tensor(completion.action_ids)[:, None]).squeeze(1)
    return float((torch.tensor(completion.behaviour_logprobs) - expected).abs().max())


def lifecycles(engine, tokenizer, num_packs=3, num_siblings=4, **kwargs):
    more = {"chat": Chat(tokenizer), "window": 256, "max_new_tokens": 40} | kwargs
    return play(engine, num_packs=num_packs, num_siblings=num_siblings, **more)


def changed(model, by, seed):
    """Weights a step away."""
    noise = torch.Generator().manual_seed(seed)
    return {
        name: tensor + by * torch.randn(tensor.shape, generator=noise) for name, tensor in model.state_dict().items()
    }


def test_greedy_turns_equal_those_of_the_transformers_engine(engine, model):
    other = TransformersEngine()
    other.bind(model, stop_ids=[2])
    other.update_weights(model.state_dict().items(), policy_version=7)
    asked = [request(ids, temperature=0.0, max_new_tokens=12) for ids in prompts(64)]
    theirs = ask(
        other, *(Request(**{n: getattr(r, n) for n in r.__slots__} | {"dialogue": str(i)}) for i, r in enumerate(asked))
    )
    for ours, reference in zip(ask(engine, *asked), theirs, strict=True):
        assert ours.action_ids == reference.action_ids
        assert ours.stop is reference.stop
        assert ours.prompt_digest == reference.prompt_digest
        assert ours.behaviour_logprobs == pytest.approx(reference.behaviour_logprobs, abs=1e-5)


def test_log_probs_stay_within_1e_4_of_the_training_forward_over_20_syncs(engine, model):
    kept, largest = {n: t.clone() for n, t in model.state_dict().items()}, 0.0
    try:
        for version in range(8, 28):
            model.load_state_dict(changed(model, 0.02, version))
            engine.update_weights(model.state_dict().items(), version)
            for ids, said in zip(prompts(16), ask(engine, *map(request, prompts(16))), strict=True):
                largest = max(largest, gap(model, ids, said))
                assert said.policy_version == version
    finally:
        model.load_state_dict(kept)
    print(f"largest log-prob gap over 20 syncs: {largest:.1e}")
    assert largest <= 1e-4


def test_lifecycles_of_several_turns_are_exact_to_the_token(engine, model, tokenizer):
    groups = lifecycles(engine, tokenizer)
    see_exact(groups, model)
    segments = segments_of(groups)
    keys = [(s.pack_id, s.sibling, s.episode) for s in segments]
    assert len(keys) == len(set(keys)) == 3 * 4 * 5
    assert max(len(s.token_ids) for s in segments) > 64


def test_a_sample_does_not_depend_on_who_shares_the_batch(engine, tokenizer):
    alone = lifecycles(engine, tokenizer, num_packs=1, num_siblings=2)
    crowded = lifecycles(engine, tokenizer, num_packs=5, num_siblings=20)
    for k in range(2):
        a, b = alone[0].lifecycles[k], crowded[0].lifecycles[k]
        assert [t.action_ids for e in a.episodes for t in e.turns] == [
            t.action_ids for e in b.episodes for t in e.turns
        ]


@pytest.mark.parametrize("temperature", [0.3, 0.5, 1.0, 2.0])
def test_log_probs_are_those_of_the_distribution_sampled_from(temperature, engine, model):
    for ids, said in zip(
        prompts(8), ask(engine, *(request(i, temperature=temperature) for i in prompts(8))), strict=True
    ):
        assert gap(model, ids, said, temperature) <= 1e-5


def test_a_turn_stops_at_the_stop_token_or_at_the_limit_or_at_the_window(engine):
    completions = ask(engine, *(request(PROMPT, noise_seed=i, max_new_tokens=40) for i in range(100)))
    stopped = [c for c in completions if c.stop is StopReason.STOP]
    assert 0 < len(stopped) < 100
    assert all(c.action_ids[-1] == 2 and 2 not in c.action_ids[:-1] for c in stopped)
    assert all(len(c.action_ids) == 40 for c in completions if c.stop is StopReason.LENGTH)
    (full,) = ask(engine, request([3] * 255, max_new_tokens=1))
    assert len(full.action_ids) == 1
    assert full.prompt_digest == digest([3] * 255)


def test_a_request_that_vllm_refuses_fails_alone(engine):
    async def both():
        asked = (engine.generate(request(ids)) for ids in ([3] * 256, PROMPT))
        return await asyncio.gather(*asked, return_exceptions=True)

    refused, answered = asyncio.run(both())
    assert isinstance(refused, EngineFailure)
    assert len(answered.action_ids) == 5


@in_process
def test_a_caller_who_is_cancelled_takes_the_request_along(engine):
    async def cancel_one():
        gone, stays = (asyncio.create_task(engine.generate(request(PROMPT, max_new_tokens=100))) for _ in range(2))
        for _ in range(5):
            await asyncio.sleep(0)
        gone.cancel()
        return await asyncio.gather(gone, stays, return_exceptions=True)

    gone, stays = asyncio.run(cancel_one())
    assert isinstance(gone, asyncio.CancelledError)
    assert stays.action_ids
    assert not engine._driver.llm.has_unfinished_requests()


@in_process
def test_a_loop_that_ended_in_the_middle_leaves_nothing_behind(engine):
    async def walk_out():
        task = asyncio.create_task(engine.generate(request(PROMPT, max_new_tokens=100)))
        for _ in range(5):
            await asyncio.sleep(0)
        return task

    asyncio.run(walk_out())
    assert engine._driver.llm.has_unfinished_requests()
    (said,) = ask(engine, request(PROMPT))
    assert len(said.action_ids) == 5
    assert not engine._driver.llm.has_unfinished_requests()


def test_weights_do_not_change_and_no_engine_falls_asleep_under_a_turn_in_flight(engine, model):
    async def change_meanwhile():
        task = asyncio.create_task(engine.generate(request(PROMPT, max_new_tokens=100)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for act in (lambda: engine.update_weights(model.state_dict().items(), policy_version=8), engine.sleep):
            with pytest.raises(EngineFailure, match="1 turns are in flight"):
                act()
        await task

    asyncio.run(change_meanwhile())


def test_a_weight_that_was_left_out_of_a_sync_is_named_and_a_temperature_that_vllm_would_change_refused(engine, model):
    weights = dict(model.state_dict())
    del weights["model.layers.0.self_attn.k_proj.weight"]
    with pytest.raises(EngineFailure, match=r"layers\.0\.self_attn\.k_proj\.weight"):
        engine.update_weights(weights.items(), policy_version=8)
    with pytest.raises(EngineRefused, match=r"temperature 0\.005"):
        ask(engine, request(PROMPT, temperature=0.005))


@in_process
def test_an_error_inside_vllm_reaches_every_waiting_lifecycle_and_the_engine_lives_on(engine, tokenizer, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(engine._driver.llm, "step", lambda: 1 / 0)
        groups = lifecycles(engine, tokenizer)
    errors = {e.error for g in groups for x in g.lifecycles for e in x.episodes if e.error}
    assert errors == {"EngineFailure: vLLM raised ZeroDivisionError: division by zero"}
    assert all(not x.failed for g in lifecycles(engine, tokenizer) for x in g.lifecycles)


@in_process
def test_sampling_leaves_the_process_s_own_randomness_alone(engine):
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    ask(engine, *(request(PROMPT, noise_seed=i) for i in range(4)))
    assert torch.equal(before, torch.get_rng_state())
    torch.set_num_threads(threads + 1)
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)


def test_a_head_size_that_vllm_lacks_on_a_cpu_is_refused_by_key(tokenizer):
    model = TinyPolicy(**TINY | {"num_heads": 4}).model(tokenizer)
    with pytest.raises(ConfigError, match=r"num_heads\) is 16; expected one of 32, 64"):
        VLLMEngine().bind(model, stop_ids=[2])


def test_sleep_and_staged_wake_up_leave_samples_exact(engine, model):
    before = ask(engine, *map(request, prompts(8)))
    engine.sleep()
    with pytest.raises(EngineFailure, match=r"(engine|servers) sleep"):
        ask(engine, request(PROMPT))
    engine.wake("weights")
    assert engine.asleep
    engine.update_weights(model.state_dict().items(), 7)
    engine.wake("kv_cache")
    assert ask(engine, *map(request, prompts(8))) == before
