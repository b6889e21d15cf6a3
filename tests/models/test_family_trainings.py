"""A checkpoint of each family is trained, synced, exported, loaded back, and served by vLLM; the guide's table is held to it."""

import re

import pytest
import torch
from transformers import AutoModelForCausalLM

from cod_lightning.engines.self_test import SelfTest
from cod_lightning.engines.vllm import VLLMEngine
from tests.command_line import ROOT
from tests.families import FAMILIES, every_day, made, saved
from tests.random_checkpoint import trained_and_exported

SETTINGS = {"data.rollouts_per_epoch": 1, "model.lr": 0.01, "model.policy.init_args.window": 3000}
EVERY_DAY = ("llama", "gemma3_text", "deepseek_v3")
SIZES = {"hidden_size": 64, "head_dim": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
"""Heads of 32, which vLLM has a kernel for."""
OWN_CODE = ("llama", "mistral", "qwen2", "qwen3", "phi3", "glm4", "granite", "gemma2", "gemma3_text", "cohere2")
THEIR_CODE = ("olmo2", "olmo3", "smollm3")
"""vLLM runs transformers' own class of these, and changes it."""


@pytest.mark.slow
@pytest.mark.parametrize("name", every_day(FAMILIES, EVERY_DAY))
def test_a_family_is_trained_on_its_own_log_probs_and_comes_back_as_it_was_trained(name, tmp_path):
    base = saved(tmp_path / "base", name)
    (update,) = trained_and_exported(tmp_path, base, **SETTINGS)
    assert float(update["rollout/token_drift"]) == float(update["rollout/num_failed"]) == 0
    assert float(update["train/max_logprob_gap"]) < 1e-5
    assert float(update["engine/self_test_gap"]) < 1e-4  # after the update: the engine has the new weights
    loaded, found = AutoModelForCausalLM.from_pretrained(
        tmp_path / "out", dtype=torch.float32, output_loading_info=True
    )
    assert not found["missing_keys"]
    assert not found["unexpected_keys"]
    trained = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    own, before = loaded.state_dict(), AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).state_dict()
    assert all(torch.equal(own[key.removeprefix("model.")], weight) for key, weight in trained.items())
    assert any(not torch.equal(own[key], before[key]) for key in own)


def test_the_table_of_the_guide_lists_these_families():
    guide = (ROOT / "docs" / "guides" / "your_gpu.md").read_text()
    table = guide.split("## Which checkpoints\n")[1].split("\n## ")[0]
    rows_of = [
        line.split("|")[1:4] for line in table.splitlines() if line.startswith("| `") and "model_type" not in line
    ]
    listed = {name: served.strip() for names, _, served in rows_of for name in re.findall(r"`(\w+)`", names)}
    assert set(listed) == set(FAMILIES)
    assert {name for name, served in listed.items() if served == "served"} <= {*OWN_CODE, *THEIR_CODE}


@pytest.mark.vllm
@pytest.mark.parametrize("name", every_day(OWN_CODE + THEIR_CODE, ("qwen3", "gemma3_text", "olmo2")))
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
