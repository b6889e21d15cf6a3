"""A GGUF file is trained, evaluated and exported like any checkpoint."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cod_lightning.models.gguf.cache import checkpoint_folder
from tests.random_checkpoint import trained_and_exported
from tests.tiny_gguf import TEMPLATE, tiny_model, write_gguf

pytest.importorskip("gguf", reason="gguf is not installed")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["qwen3_lora", pytest.param("qwen3_8b", marks=pytest.mark.soak)])
def test_a_file_is_trained_on_its_own_log_probs_and_exported_as_a_plain_folder(recipe, tmp_path):
    file = write_gguf(tmp_path / "tiny.gguf", tiny_model(most_positions=16384))
    for update in trained_and_exported(tmp_path, file, recipe, **{"model.lr": 1e-3}):
        assert float(update["rollout/token_drift"]) == float(update["rollout/num_failed"]) == 0
        assert float(update["train/max_logprob_gap"]) < 1e-4
    out = tmp_path / "out"
    loaded, found = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not found["missing_keys"]
    before = AutoModelForCausalLM.from_pretrained(checkpoint_folder(str(file), "model.policy.path"))
    assert type(loaded) is type(before)
    assert all(weight.isfinite().all() for weight in loaded.parameters())
    assert {name: w.shape for name, w in loaded.named_parameters()} == {
        n: w.shape for n, w in before.named_parameters()
    }
    assert torch.equal(loaded.get_output_embeddings().weight, loaded.get_input_embeddings().weight)
    assert AutoTokenizer.from_pretrained(out).chat_template == TEMPLATE
