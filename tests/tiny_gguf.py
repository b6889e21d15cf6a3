"""Small GGUF files as llama.cpp's converter writes them: a random model, a vocabulary of bytes with a few merges."""

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, Qwen2Config, Qwen3Config

from tests.models.gguf.reference import _SIGNS

TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nBe brief.<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MERGES = ["Ġ Ġ", "ĠĠ Ġ", "Ġ t", "h e", "Ġt he", "1 2", "12 3", "e l", "el l", "Ġ 1", "Ċ Ċ", "l e", "le v", "e r"]
MERGES += ["lev er", "' s"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CONFIGS = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config, "gemma3": Gemma3TextConfig}


def byte_tokens():
    """Tokens, types and merges of a vocabulary of bytes; `12`, `123` and ` 1` are tokens that smollm's digits never reach."""
    made = [merge.replace(" ", "") for merge in MERGES]
    tokens = [*SPECIAL, *_SIGNS, *made, "<think>"]
    return {"model": "gpt2", "pre": "smollm", "tokens": tokens, "types": [3] * 3 + [1] * (256 + len(made)) + [4]}


def character_tokens(space_prefix=True):
    """The same for SentencePiece's scores, with runs of spaces that are matched as a whole, as Gemma has them."""
    letters = [*"\u2581abcdehlrstvT1230.,:", "é", "你"]
    made = ["▁t", "he", "▁the", "ll", "ell", "lle", "▁h", "▁he", "12", "▁▁▁", "er", "ver"]
    own = ["<unk>", "<s>", "</s>", "  ", "   ", "\n\n"]
    tokens = own + [f"<0x{byte:02X}>" for byte in range(256)] + made + letters
    types = [2, 3, 3, 4, 4, 4] + [6] * 256 + [1] * (len(made) + len(letters))
    scores = [0.0] * 262 + [-float(place) for place in range(len(made) + len(letters))]
    return {
        "model": "llama",
        "pre": "default",
        "tokens": tokens,
        "types": types,
        "scores": scores,
        "space_prefix": space_prefix,
    }


def tiny_model(architecture="llama", num_tokens=512, tie=True, most_positions=256, **settings):
    """A random model of two layers whose matrices are as Q8_0 has them."""
    from gguf import GGMLQuantizationType, quants

    torch.manual_seed(0)
    config = CONFIGS[architecture](
        vocab_size=num_tokens,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=most_positions,
        tie_word_embeddings=tie,
        rms_norm_eps=1e-5,
        **({"head_dim": 32} if architecture in ("qwen3", "gemma3") else {}),
        **({"sliding_window": 8, "query_pre_attn_scalar": 32} if architecture == "gemma3" else {}),
        **settings,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for name, weight in model.named_parameters():
        kind = GGMLQuantizationType.Q8_0
        drawn = torch.randn(weight.shape) * 0.1 + ("norm" in name)
        if weight.ndim == 2:
            drawn = torch.from_numpy(quants.dequantize(quants.quantize(drawn.numpy(), kind), kind))
        weight.data.copy_(drawn)
    return model.eval()


def write_gguf(path, model, vocabulary=None, architecture="llama", extra_tensors=(), **changes):
    """The file; `changes` are metadata that is added or replaced, None leaves it out. Returns the path."""
    from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, get_tensor_name_map, quants

    vocabulary, config = vocabulary or byte_tokens(), model.config
    writer = GGUFWriter(path, architecture)
    values = {
        f"{architecture}.block_count": config.num_hidden_layers,
        f"{architecture}.context_length": config.max_position_embeddings,
        f"{architecture}.embedding_length": config.hidden_size,
        f"{architecture}.feed_forward_length": config.intermediate_size,
        f"{architecture}.attention.head_count": config.num_attention_heads,
        f"{architecture}.attention.head_count_kv": config.num_key_value_heads,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": vocabulary["model"],
        "tokenizer.ggml.pre": vocabulary["pre"],
        "tokenizer.ggml.tokens": vocabulary["tokens"],
        "tokenizer.ggml.token_type": vocabulary["types"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }
    if vocabulary["model"] == "gpt2":
        values["tokenizer.ggml.merges"] = MERGES
    else:
        values["tokenizer.ggml.scores"] = vocabulary["scores"]
        values["tokenizer.ggml.add_space_prefix"] = vocabulary["space_prefix"]
    if architecture in ("qwen3", "gemma3"):
        values |= {f"{architecture}.attention.key_length": 32, f"{architecture}.attention.value_length": 32}
    if architecture == "gemma3":
        values |= {"gemma3.attention.sliding_window": 8, "gemma3.rope.freq_base": 1_000_000.0}
    for key, value in (values | changes).items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_array(key, value)
    names = get_tensor_name_map(next(a for a, n in MODEL_ARCH_NAMES.items() if n == architecture), 2)
    for name, weight in model.named_parameters():
        theirs, values = names.get_name(name, try_suffixes=(".weight", ".bias")), weight.detach().numpy()
        heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}.get(theirs.split("attn_")[-1][0])
        if architecture == "llama" and (".attn_q." in theirs or ".attn_k." in theirs):
            values = values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
        if architecture == "gemma3" and theirs.endswith("norm.weight"):
            values = values + 1
        kind = GGMLQuantizationType.Q8_0 if values.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(theirs, quants.quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)
    for extra in extra_tensors:
        writer.add_tensor(extra, np.ones(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tiny_file(path, **changes):
    """`write_gguf` of a tiny Llama."""
    return write_gguf(path, tiny_model(), **changes)
