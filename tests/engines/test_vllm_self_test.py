"""Faults that are known to happen with vLLM, planted one by one; each must stop the run, with its cause."""

import pytest
import torch

from cod_lightning.engines.self_test import SelfTest
from cod_lightning.engines.vllm import VLLMEngine
from cod_lightning.errors import EngineMismatch
from cod_lightning.models import TinyPolicy
from tests.stubs import WordWorld

pytestmark = pytest.mark.vllm
TINY = {"hidden_size": 64, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 64}
WINDOWS = pytest.mark.parametrize("window", [96, 256])


def policy_model():
    torch.manual_seed(0)
    policy = TinyPolicy(**TINY, window=256)
    return policy.model(policy.tokenizer(WordWorld().words()))


def step(model, seed=1):
    """What an optimizer would have done."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))


@pytest.fixture(scope="module")
def started():
    engine = VLLMEngine()
    engine.bind(policy_model(), stop_ids=[2], window=256)
    return engine


@pytest.fixture
def model(started):
    """Synced and tested once, as a run does, and then a step away."""
    model = policy_model()
    sync(started, model)
    for window in (96, 256):
        SelfTest()(started, model, window=window)
    step(model)
    return model


def sync(engine, model):
    engine.update_weights(model.state_dict().items(), engine.policy_version + 1)


def left_as_it_was(name):
    """A fault of what vLLM is handed."""
    before = policy_model().state_dict()[name]
    return lambda named: [(n, before if n == name else t) for n, t in named]


FAULTS = {
    "prefixes kept": (None, "went on from keys and values of earlier weights"),
    "another precision": (lambda named: [(n, t.bfloat16().float()) for n, t in named], "or it computes otherwise"),
    **{
        name: (left_as_it_was(name), "its weights are not the trained ones")
        for name in (
            "model.layers.0.self_attn.k_proj.weight",
            "model.layers.1.mlp.down_proj.weight",
            "model.layers.1.self_attn.q_norm.weight",
            "lm_head.weight",  # tied, and yet a layer of its own to vLLM on a CPU
        )
    },
}


@WINDOWS
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught_with_its_cause(fault, window, started, model, monkeypatch):
    (plant, said), reload = FAULTS[fault], started._reload
    if plant is None:
        monkeypatch.setattr(started, "_forget_prefixes", lambda: None)
    else:
        monkeypatch.setattr(started, "_reload", lambda named: reload(plant(named)))
    sync(started, model)
    with pytest.raises(EngineMismatch, match=said):
        SelfTest()(started, model, window=window)


def test_an_engine_that_computes_in_bfloat16_passes_the_loose_tolerance_and_fails_the_strict():
    model = policy_model()
    engine = VLLMEngine(dtype="bfloat16")
    engine.bind(model, stop_ids=[2], window=256)
    sync(engine, model)
    gap = SelfTest()(engine, model, window=256)
    assert not gap.strict
    print(f"gap of a bfloat16 engine: {gap.size:.1e}")
    with pytest.raises(EngineMismatch, match="the engine in bfloat16"):
        SelfTest(tolerance=1e-3)(engine, model, window=256)
