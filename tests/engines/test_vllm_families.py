"""Families that vLLM serves on a CPU: after every sync its log-probs are those of the training forward."""

import pytest
import torch

from cod_lightning.engines.self_test import SelfTest
from cod_lightning.engines.vllm import VLLMEngine
from tests.families import every_day, made

SIZES = {"hidden_size": 64, "head_dim": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
"""Heads of 32, which vLLM has a kernel for."""
OWN_CODE = ("llama", "mistral", "qwen2", "qwen3", "phi3", "glm4", "granite", "gemma2", "gemma3_text", "cohere2")
THEIR_CODE = ("olmo2", "olmo3", "smollm3")
"""vLLM runs transformers' own class of these, and changes it."""
EVERY_DAY = ("qwen3", "gemma3_text", "olmo2")


@pytest.mark.vllm
@pytest.mark.parametrize("name", every_day(OWN_CODE + THEIR_CODE, EVERY_DAY))
def test_a_family_is_served_with_the_weights_of_every_sync(name):
    model = made(name, std=0.1, **SIZES)
    engine = VLLMEngine(max_num_seqs=8, kv_cache_gb=0.1)
    engine.bind(model, [2], window=256)
    for version in (1, 2):
        engine.update_weights(model.state_dict().items(), version)
        assert SelfTest(tolerance=1e-4)(engine, model, window=256).size < 1e-4
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.01 * torch.randn_like(weight))
    assert made(name, std=0.1, **SIZES).dtype == torch.float32  # the class can still be made
