"""A checkpoint of each family is trained, synced, exported and loaded back; the guide's table is held to it."""

import re

import pytest
import torch
from transformers import AutoModelForCausalLM

from cod_lightning.cli import main
from tests.command_line import ROOT, rows
from tests.engines.test_vllm_families import OWN_CODE, THEIR_CODE
from tests.families import FAMILIES, every_day, saved
from tests.random_checkpoint import SMALL

CONFIG = (
    "defaults:\n  - recipe: qwen3_8b\n  - env: levers\n  - _self_\n"
    "data: {rewards: {noisy: {class_path: cod_lightning.methods.noisy.NoisyJudge, init_args: {false_negative: 0.1}}}}\n"
)
SETTINGS = (
    SMALL
    | {
        "trainer.limit_val_batches": 0,
        "data.rollouts_per_epoch": 1,
        "data.group_size": 8,
        "data.suites": "null",
        "data.rewards.noisy.init_args.false_positive": 0.5,  # a random model solves nothing, and there would be nothing to learn
        "model.optimizer": "adamw",
        "model.lr": 0.01,
        "model.policy.init_args.dtype": "float32",
        "model.policy.init_args.window": 3000,
        "data.env.init_args.protocol": "natural",
    }
)


EVERY_DAY = ("llama", "qwen3", "qwen3_next", "mixtral", "gemma3_text", "deepseek_v3")


@pytest.mark.slow
@pytest.mark.parametrize("name", every_day(FAMILIES, EVERY_DAY))
def test_a_family_is_trained_on_its_own_log_probs_and_comes_back_as_it_was_trained(name, tmp_path):
    base, run, out = saved(tmp_path / "base", name), tmp_path / "run", tmp_path / "out"
    (tmp_path / "family.yaml").write_text(CONFIG)
    settings = SETTINGS | {"model.policy.init_args.path": base, "trainer.default_root_dir": run}
    flags = [text for key, value in settings.items() for text in (f"--{key}", str(value))]
    assert main(["fit", "--config", str(tmp_path / "family.yaml"), "engine=TransformersEngine", *flags]) == 0
    (update,) = [row for row in rows(run) if row["rollout/token_drift"]]
    assert float(update["rollout/token_drift"]) == float(update["rollout/num_failed"]) == 0
    assert float(update["train/max_logprob_gap"]) < 1e-5
    assert float(update["engine/self_test_gap"]) < 1e-4  # after the update: the engine has the new weights
    last = run / "checkpoints" / "last.ckpt"
    assert main(["export", "--ckpt_path", str(last), "--out", str(out)]) == 0
    loaded, found = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, output_loading_info=True)
    assert not found["missing_keys"]
    assert not found["unexpected_keys"]
    trained = torch.load(last, weights_only=True)["state_dict"]
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
