"""A Hugging Face folder with a random Qwen3 and a tokenizer trained on the spot, and settings of a short training with it."""

import copy

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from cod_lightning.cli import main
from cod_lightning.commands import LEARNT_NOTHING
from tests.command_line import cod, rows
from tests.real_templates import QWEN3_TOOLS, bpe_tokenizer

TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
"""Tokens of Qwen3's tokenizer that are not special."""
SMALL = {
    "trainer.accelerator": "cpu",
    "trainer.strategy": "auto",
    "trainer.devices": 1,
    "trainer.precision": "32-true",
    "trainer.max_epochs": 1,
    "data.rollouts_per_epoch": 2,
    "data.packs_per_rollout": 1,
    "data.group_size": 2,
    "data.pack_size": 2,
    "data.val_packs": 1,
    "data.max_new_tokens": 12,
    "model.policy.init_args.window": 12000,
    "model.policy.init_args.gradient_checkpointing": "false",
}

JUDGED = (
    "defaults:\n  - recipe: {recipe}\n  - env: levers\n  - _self_\n"
    "data: {{rewards: {{noisy: {{class_path: cod_lightning.methods.noisy.NoisyJudge, init_args: {{false_negative: 0.1}}}}}}}}\n"
)
"""A config of a recipe in which rewards differ: a random model solves nothing, and there would be nothing to learn."""


def saved_checkpoint(folder, template=QWEN3_TOOLS):
    """The folder, with the checkpoint in it."""
    tokenizer = copy.deepcopy(bpe_tokenizer(template))
    tokenizer.add_tokens(TAGS)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,  # vLLM on a CPU takes no smaller ones
        intermediate_size=64,
        max_position_embeddings=16384,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def trained(folder, checkpoint, engine="TransformersEngine", **more):
    """Token drift and failed lifecycles of two updates of the folder's `theirs.yaml` with that checkpoint."""
    settings = SMALL | {"model.policy.init_args.path": checkpoint, "trainer.default_root_dir": folder / "run"} | more
    flags = [text for key, value in settings.items() for text in (f"--{key}", str(value))]
    fresh = engine != "TransformersEngine"
    done = cod("fit", "--config", "theirs.yaml", f"engine={engine}", *flags, cwd=folder, fresh=fresh)
    assert done.returncode in (0, LEARNT_NOTHING), done.stderr[-3000:]
    steps = [row for row in rows(folder / "run") if row["rollout/token_drift"]]
    return [(float(row["rollout/token_drift"]), float(row["rollout/num_failed"])) for row in steps]


def write_recipe(folder, env):
    """`theirs.yaml`: the recipe of a language model in the environment of these lines."""
    lines = "".join(f"    {line}\n" for line in env.splitlines() if not line.startswith("#"))
    (folder / "theirs.yaml").write_text(f"defaults:\n  - recipe: qwen3_8b\n  - _self_\ndata:\n  env:\n{lines}")


def trained_and_exported(folder, checkpoint, recipe="qwen3_8b", **settings):
    """Rows of the updates of a short training in `folder/run`, whose last checkpoint is exported to `folder/out`."""
    (folder / "judged.yaml").write_text(JUDGED.format(recipe=recipe))
    own = {"trainer.limit_val_batches": 0, "data.group_size": 8, "data.suites": "null", "model.optimizer": "adamw"}
    own |= {"data.rewards.noisy.init_args.false_positive": 0.5, "data.env.init_args.protocol": "natural"}
    own |= {"model.policy.init_args.path": checkpoint, "model.policy.init_args.dtype": "float32"}
    all_of_them = SMALL | own | {"trainer.default_root_dir": folder / "run"} | settings
    flags = [text for key, value in all_of_them.items() for text in (f"--{key}", str(value))]
    assert main(["fit", "--config", str(folder / "judged.yaml"), "engine=TransformersEngine", *flags]) == 0
    last = folder / "run" / "checkpoints" / "last.ckpt"
    assert main(["export", "--ckpt_path", str(last), "--out", str(folder / "out")]) == 0
    return [row for row in rows(folder / "run") if row["rollout/token_drift"]]
