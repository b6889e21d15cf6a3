"""A Hugging Face folder with a random Qwen3 and a tokenizer trained on the spot, and settings of a short training with it."""

import copy

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

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
