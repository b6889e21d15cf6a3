"""A base in 4 bits served by real vLLM as it is: the very bytes that are trained on. Run by `make vllm`."""

import pytest
import torch

from cod_lightning.adapters import stored_base, trained_weights
from cod_lightning.engines.self_test import SelfTest
from cod_lightning.engines.vllm import VLLMEngine
from cod_lightning.engines.vllm_server.engine import VLLMServerEngine
from cod_lightning.engines.vllm_server.process import LocalServers
from cod_lightning.errors import ConfigError
from cod_lightning.models import QLoRAPolicy
from tests.adapted import adapted, step

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def model(base):
    return adapted(QLoRAPolicy, base, dtype="bfloat16")


@pytest.fixture(scope="module", params=["in process", pytest.param("on a server", marks=pytest.mark.soak)])
def engine(request, model, tmp_path_factory):
    if request.param == "in process":
        made = VLLMEngine(max_num_seqs=64, kv_cache_gb=0.25)
    else:
        made = VLLMServerEngine(local=LocalServers(max_num_seqs=64, kv_cache_gb=0.25))
        made.log_folder = tmp_path_factory.mktemp("logs")
    made.bind(model, stop_ids=[2], window=256)
    yield made
    if isinstance(made, VLLMServerEngine):
        made.close()


def sync(engine, model):
    engine.update_weights(trained_weights(model).items(), engine.policy_version + 1)


def test_log_probs_are_those_of_the_training_forward_as_far_as_bfloat16_goes(engine, model):
    gaps = []
    for seed in range(20):
        step(model, seed, size=0.01)
        sync(engine, model)
        gaps.append(SelfTest()(engine, model, window=256).size)
    print(f"largest gap over 20 syncs on a base in 4 bits: {max(gaps):.1e}")
    assert 0 < max(gaps) <= 0.05


def test_the_weights_that_vllm_holds_are_the_bytes_that_are_trained_on(model):
    engine = VLLMEngine(max_num_seqs=8, kv_cache_gb=0.25)
    engine.bind(model, stop_ids=[2], window=256)
    theirs = engine._bound().llm.apply_model(_down_projection)[0]  # pyright: ignore
    ours = stored_base(model)["model.layers.0.mlp.down_proj.weight"]
    assert ours.dtype == torch.uint8
    torch.testing.assert_close(theirs.flatten(), ours.flatten(), rtol=0, atol=0)


def _down_projection(model):
    weights = dict(model.named_parameters())
    return next(weight for name, weight in weights.items() if "layers.0.mlp.down_proj" in name and "lora" not in name)


def test_float32_is_refused_with_what_to_do_instead(base):
    model = adapted(QLoRAPolicy, base)
    with pytest.raises(ConfigError, match=r"model.policy.dtype.*bfloat16.*engine=TransformersEngine") as raised:
        VLLMEngine().bind(model, stop_ids=[2], window=256)
    assert "float32" in str(raised.value)
