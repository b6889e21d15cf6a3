"""Shapes and counts of `make gpu`: real ones, and small ones for a dry run on the CPU."""

from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What every part measures with; random weights throughout."""

    half_b: dict[str, Any]
    eight_b: dict[str, Any]
    scratch: dict[str, Any]
    """Of the policy that is trained from scratch; its vocabulary is its tokenizer's."""
    tokens: int
    """Of a micro-batch."""
    dialogues: tuple[int, ...]
    """Sampled at a time."""
    new_tokens: int
    repeats: int
    warm_updates: int
    cod_updates: int
    device: str
    dtype: torch.dtype = torch.bfloat16
    gap_prompts: int = 32
    more: dict[str, Any] = field(default_factory=dict)


def _shape(
    hidden: int, layers: int, heads: int, kv: int, width: int, vocabulary: int, head: int = 128
) -> dict[str, Any]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": head,
        "intermediate_size": width,
        "max_position_embeddings": 8192,
    }


REAL = Sizes(
    half_b=_shape(1024, 28, 16, 8, 3072, 151_936) | {"tie_word_embeddings": True},  # Qwen3-0.6B
    eight_b=_shape(4096, 36, 32, 8, 12_288, 151_936) | {"tie_word_embeddings": False},  # Qwen3-8B
    scratch={"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072},
    tokens=8192,
    dialogues=(32, 256),
    new_tokens=256,
    repeats=5,
    warm_updates=800,
    cod_updates=60,
    device="cuda",
)
SMALL = Sizes(
    half_b=_shape(64, 2, 2, 1, 128, 512, 32) | {"tie_word_embeddings": True},
    eight_b=_shape(64, 3, 2, 1, 128, 512, 32) | {"tie_word_embeddings": False},
    scratch={"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64},
    tokens=64,
    dialogues=(4,),
    new_tokens=8,
    repeats=1,
    warm_updates=2,
    cod_updates=2,
    device="cpu",
    gap_prompts=2,
)


def random_model(shape: dict[str, Any], sizes: Sizes, layers: int | None = None) -> Qwen3ForCausalLM:
    """On the device, in its precision; nothing is written or read."""
    torch.manual_seed(0)
    config = Qwen3Config(**(shape | ({} if layers is None else {"num_hidden_layers": layers})))
    with torch.device(sizes.device):
        torch.set_default_dtype(sizes.dtype)
        try:
            model = Qwen3ForCausalLM._from_config(config, attn_implementation="sdpa")
        finally:
            torch.set_default_dtype(torch.float32)
    return model.train()
