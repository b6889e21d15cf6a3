"""Families of models as tiny random ones: their configs, and folders as checkpoints on the hub have them."""

import copy

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from cod_lightning.models.pretrained import attention_of
from tests.real_templates import QWEN3, bpe_tokenizer

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6}
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1}
RECURRENT = {
    "num_hidden_layers": 4,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
}
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}
"""A window shorter than the rows of these tests."""
WITHOUT_WIDTH = {key: value for key, value in SIZES.items() if key != "head_dim"} | {"num_key_value_heads": 4}
FAMILIES = {
    "llama": SIZES,
    "mistral": SIZES | {"sliding_window": 8},
    "mixtral": SIZES | {"num_local_experts": 4},
    "qwen2": SIZES,
    "qwen3": SIZES,
    "qwen3_moe": SIZES | EXPERTS,
    "qwen3_next": SIZES | EXPERTS | RECURRENT | {"shared_expert_intermediate_size": 16},
    "qwen3_5_text": SIZES | RECURRENT,
    "gemma2": SIZES | SLIDING,
    "gemma3_text": SIZES | SLIDING,
    "phi3": SIZES,
    "olmo2": SIZES,
    "olmo3": SIZES | SLIDING,
    "granite": SIZES | {"logits_scaling": 8.0},
    "glm4": SIZES,
    "glm4_moe": SIZES | ROUTED | {"first_k_dense_replace": 1},
    "cohere2": SIZES | SLIDING,
    "smollm3": SIZES,
    "deepseek_v3": WITHOUT_WIDTH | ROUTED | LATENT | {"first_k_dense_replace": 1},
    "gpt_oss": SIZES | SLIDING | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "opt": SIZES | {"ffn_dim": 48, "word_embed_proj_dim": 32},
}


def every_day(names, chosen):
    """Parameters of a test: the chosen names are part of `.ci/run`, the others of `make soak`."""
    return [pytest.param(name, marks=() if name in chosen else pytest.mark.soak) for name in names]


def made(name, std=0.2, **more):
    """The family's model with weights large enough that wrong logits show."""
    torch.manual_seed(0)
    config = CONFIG_MAPPING[name](**FAMILIES[name] | more)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention_of(config)).float().eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=std)
    return model


def saved(folder, name, std=0.05, **more):
    """The folder, with a checkpoint of the family and a byte-level tokenizer with Qwen3's template in it."""
    tokenizer = copy.deepcopy(bpe_tokenizer(QWEN3))
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    made(name, std, **{"vocab_size": len(tokenizer), "max_position_embeddings": 4096} | ids | more).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    return folder
