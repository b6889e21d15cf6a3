"""A GGUF file is trained, evaluated and exported like any checkpoint."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from cod_lightning.cli import main
from cod_lightning.models.gguf.cache import checkpoint_folder
from tests.command_line import rows
from tests.random_checkpoint import SMALL
from tests.tiny_gguf import TEMPLATE, tiny_model, write_gguf

pytest.importorskip("gguf", reason="gguf is not installed")
CONFIG = (
    "defaults:\n  - recipe: {recipe}\n  - env: levers\n  - _self_\n"
    "data: {{rewards: {{noisy: {{class_path: cod_lightning.methods.noisy.NoisyJudge, init_args: {{false_negative: 0.1}}}}}}}}\n"
)
SETTINGS = (
    SMALL
    | {
        "trainer.limit_val_batches": 0,
        "data.suites": "null",
        "data.group_size": 8,
        "data.rewards.noisy.init_args.false_positive": 0.5,  # a random model solves nothing, and there would be nothing to learn
        "data.env.init_args.protocol": "natural",
        "model.policy.init_args.dtype": "float32",
        "model.optimizer": "adamw",
        "model.lr": 1e-3,
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["qwen3_lora", "qwen3_8b"])
def test_a_file_is_trained_on_its_own_log_probs_and_exported_as_a_plain_folder(recipe, tmp_path):
    file = write_gguf(tmp_path / "tiny.gguf", tiny_model(most_positions=16384))
    run, out = tmp_path / "run", tmp_path / "out"
    (tmp_path / "tiny.yaml").write_text(CONFIG.format(recipe=recipe))
    settings = SETTINGS | {"model.policy.init_args.path": file, "trainer.default_root_dir": run}
    flags = [text for key, value in settings.items() for text in (f"--{key}", str(value))]
    assert main(["fit", "--config", str(tmp_path / "tiny.yaml"), "engine=TransformersEngine", *flags]) == 0
    for update in (row for row in rows(run) if row["rollout/token_drift"]):
        assert float(update["rollout/token_drift"]) == float(update["rollout/num_failed"]) == 0
        assert float(update["train/max_logprob_gap"]) < 1e-4
    assert main(["export", "--ckpt_path", str(run / "checkpoints" / "last.ckpt"), "--out", str(out)]) == 0
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
