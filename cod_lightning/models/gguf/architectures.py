"""What a GGUF file's metadata and tensors are in transformers' terms, for the architectures whose conversion is tested here.

llama.cpp's converter renames tensors, puts the rows of Llama's queries and keys in another order and adds 1 to Gemma's norms; this
undoes it. What a file says beyond the keys below, such as scaled rotary frequencies, would change the model: it is refused.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from cod_lightning.models.gguf.header import GGUFFile, Unreadable

ARCHITECTURES = {"gemma3": Gemma3TextConfig, "llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
"""`general.architecture` -> class of its config. Mistral and SmolLM2 call themselves llama."""
_SIZES = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
_READ = {
    *_SIZES,
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.value_length",
    "rope.dimension_count",
    "rope.freq_base",
    "vocab_size",
}
"""Keys of the model that may stand: all are read or checked, but for `vocab_size`, for which the embeddings speak."""
_GEMMA3_27B_LAYERS = 62
"""Gemma 3 of 27B alone scales its attention by its width per head, not by the size of a head."""


def config_of(file: GGUFFile) -> PreTrainedConfig:
    """The model's config. Raises `Unreadable` for another architecture, and for what this one cannot be in transformers."""
    name = file.value("general.architecture")
    if name not in ARCHITECTURES:
        expected = f"a causal language model of the architectures {', '.join(ARCHITECTURES)}, and it is of {name:.80}"
        raise Unreadable(expected, "Take the model in Hugging Face's form.")
    own = {key.removeprefix(f"{name}."): key for key in file.values if key.startswith(f"{name}.")}
    if unknown := sorted(own.keys() - _READ):
        expected = f"{name} without {own[unknown[0]]}, which would change the model"
        raise Unreadable(expected, "Take the model in Hugging Face's form.")
    get = partial(_integer, file, name)
    layers = {name.split(".")[1] for name in file.tensors if name.startswith("blk.")}
    if len(layers) != get("block_count"):
        expected = f"tensors of {get('block_count'):,} layers, {name}.block_count, and it has those of {len(layers):,}"
        raise Unreadable(expected, "Convert the model again.")
    embeddings = file.tensors.get("token_embd.weight")
    heads, width = get("attention.head_count"), get("embedding_length")
    head_dim = get("attention.key_length", get("rope.dimension_count", width // heads))
    for key in ("attention.value_length", "rope.dimension_count"):
        if get(key, head_dim) != head_dim:
            raise Unreadable(f"{name}.{key} equal to the size of a head, {head_dim}", "Convert the model again.")
    settings: dict[str, Any] = {theirs: get(key) for key, theirs in _SIZES.items()}
    settings |= {
        "num_key_value_heads": get("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "rms_norm_eps": _number(file, f"{name}.attention.layer_norm_rms_epsilon"),
        "vocab_size": embeddings.shape[0] if embeddings else 1,  # without, refused with the other tensors
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }
    for kind in ("bos", "eos", "padding"):
        settings[f"{kind.removesuffix('ding')}_token_id"] = file.values.get(f"tokenizer.ggml.{kind}_token_id")
    rope = {"rope_type": "default", "rope_theta": _number(file, f"{name}.rope.freq_base", 10_000.0)}
    if name == "gemma3":
        scaled = width // heads if settings["num_hidden_layers"] == _GEMMA3_27B_LAYERS else head_dim
        settings |= {"sliding_window": get("attention.sliding_window"), "query_pre_attn_scalar": scaled}
        local = {"rope_type": "default", "rope_theta": 10_000.0}
        settings["rope_parameters"] = {"full_attention": rope, "sliding_attention": local}
    else:
        if "attention.sliding_window" in own:
            raise Unreadable(f"{name} without {own['attention.sliding_window']}", "Take it in Hugging Face's form.")
        settings["rope_parameters"] = rope
    if name == "llama":
        settings["attention_bias"] = "blk.0.attn_q.bias" in file.tensors
    return ARCHITECTURES[name](**settings)


def named_weights(file: GGUFFile, config: PreTrainedConfig) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """Name, shape and name in the file of each weight of the model. Raises `Unreadable` where they are not those of the file."""
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    own = file.value("general.architecture")
    architecture = next(key for key, name in MODEL_ARCH_NAMES.items() if name == own)
    names = get_tensor_name_map(architecture, config.num_hidden_layers)
    weights = skeleton(config).state_dict()
    if config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    found = {}
    for name, weight in weights.items():
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias")) or name
        place = file.tensors.get(theirs)
        if place is None or place.shape != tuple(weight.shape):
            has = "is missing" if place is None else f"is {_by(place.shape)}"
            raise Unreadable(f"a tensor {theirs} of {_by(weight.shape)}, which {has}", "Convert the model again.")
        found[name] = theirs
    if beyond := sorted(file.tensors.keys() - set(found.values())):
        expected = f"{own} without the tensor {beyond[0]}, which would change the model"
        raise Unreadable(expected, "Take the model in Hugging Face's form.")
    for name, theirs in found.items():
        yield name, tuple(weights[name].shape), theirs


def as_trained(values: np.ndarray, name: str, config: PreTrainedConfig) -> np.ndarray:
    """The tensor `name` of the file, [rows, ...], with what llama.cpp's converter did to its values undone."""
    if config.model_type == "llama" and (".attn_q." in name or ".attn_k." in name):
        heads = config.num_attention_heads if ".attn_q." in name else config.num_key_value_heads
        pairs = values.reshape(heads, -1, 2, *values.shape[1:])  # the two rows that rotate together are neighbours
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
    if config.model_type == "gemma3_text" and name.endswith("norm.weight"):
        return values - 1
    return values


def skeleton(config: PreTrainedConfig) -> PreTrainedModel:
    """The model without weights, on the meta device."""
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def _integer(file: GGUFFile, name: str, key: str, default: int | None = None) -> int:
    """The positive number under a key of the architecture; `default` where it is missing."""
    found = file.values.get(f"{name}.{key}", default)
    if found is None:
        file.value(f"{name}.{key}")
    if not isinstance(found, int) or found < 1:
        raise Unreadable(f"{name}.{key} as one number above 0", "Convert the model again.")
    return found


def _number(file: GGUFFile, key: str, default: float | None = None) -> float:
    """The positive number under a key, the shortest that is the same in float32: 1e-05, not 9.999999747378752e-06."""
    found = file.value(key) if default is None else file.values.get(key, default)
    if not isinstance(found, int | float) or not 0 < found < math.inf:
        raise Unreadable(f"{key} as one number above 0, not {found!r:.40}", "Convert the model again.")
    return float(str(np.float32(found)))


def _by(shape: Any) -> str:
    return " x ".join(f"{size:,}" for size in shape)
