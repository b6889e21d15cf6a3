"""Each architecture comes back from a file as it was, and what a file says beyond is refused."""

import pytest
import torch

from cod_lightning.errors import ConfigError
from cod_lightning.models import PretrainedPolicy
from tests.cases import each
from tests.tiny_gguf import byte_tokens, character_tokens, tiny_file, tiny_model, write_gguf

pytest.importorskip("gguf", reason="gguf is not installed")


@each(("architecture", "tie"), [("llama", False), ("qwen2", True), ("qwen3", False), ("gemma3", True)])
def test_a_model_that_was_written_comes_back_with_its_weights_and_its_logits(architecture, tie, tmp_path):
    model = tiny_model(architecture, tie=tie)
    pre = "qwen2" if architecture.startswith("qwen") else "smollm"
    vocabulary = character_tokens() if architecture == "gemma3" else byte_tokens() | {"pre": pre}
    path = write_gguf(tmp_path / "tiny.gguf", model, vocabulary, architecture)
    policy = PretrainedPolicy(str(path), dtype="float32")
    found = policy.model(policy.tokenizer([])).eval()
    assert type(found) is type(model)
    assert (found.get_input_embeddings().weight is found.get_output_embeddings().weight) == tie
    for (name, weight), (same, right) in zip(found.named_parameters(), model.named_parameters(), strict=True):
        assert name == same
        # Gemma's norms are written with 1 added, in float32
        assert (weight == right).all() or torch.allclose(weight, right, rtol=0, atol=2e-7), name
    ids = torch.arange(40)[None] * 7 % 512  # longer than the window of Gemma's local layers
    assert torch.allclose(found(ids).logits, model(ids).logits, atol=1e-5)


def test_biases_of_llama_come_back_in_their_order(tmp_path):
    model = tiny_model(attention_bias=True)
    del_bias = {name for name, _ in model.named_parameters() if name.endswith("o_proj.bias")}
    for name in del_bias:
        model.get_parameter(name).data.zero_()
    path = write_gguf(tmp_path / "tiny.gguf", model)
    found = PretrainedPolicy(str(path), dtype="float32").model(None)  # pyright: ignore
    for name, right in model.named_parameters():
        assert torch.equal(found.get_parameter(name), right), name


@pytest.mark.slow
@each(
    ("changes", "said"),
    [
        ({"general.architecture": "mamba"}, "of the architectures gemma3, llama, qwen2, qwen3, and it is of mamba"),
        ({"llama.rope.scaling.factor": 8.0}, "llama without llama.rope.scaling.factor, which would change the model"),
        ({"llama.expert_count": 8}, "llama without llama.expert_count"),
        ({"llama.attention.sliding_window": 8}, "llama without llama.attention.sliding_window"),
        ({"extra_tensors": ["rope_freqs.weight"]}, "llama without the tensor rope_freqs.weight"),
        ({"llama.block_count": 3}, "tensors of 3 layers, llama.block_count, and it has those of 2"),
        ({"llama.block_count": 10**9}, "tensors of 1,000,000,000 layers"),
        ({"llama.attention.head_count": 0}, "llama.attention.head_count as one number above 0"),
        ({"llama.attention.head_count": None}, "the key llama.attention.head_count in its metadata"),
        ({"llama.feed_forward_length": 128}, "a tensor blk.0.ffn_gate.weight of 128 x 64, which is 96 x 64"),
        ({"llama.rope.freq_base": float("nan")}, "llama.rope.freq_base as one number above 0, not nan"),
        ({"llama.rope.freq_base": 0.0}, "llama.rope.freq_base as one number above 0, not 0.0"),
        ({"llama.attention.layer_norm_rms_epsilon": -1.0}, "layer_norm_rms_epsilon as one number above 0, not -1.0"),
        ({"split.count": 2}, "a model in one file, not one of several. Join them"),
        ({"tokenizer.ggml.tokens": None}, "a tokenizer, and it lacks tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.model": "rwkv"}, "tokenizer.ggml.model gpt2 or llama, not rwkv"),
        ({"tokenizer.ggml.pre": "default"}, "tokenizer.ggml.pre of gpt-2, smollm,"),
        ({"tokenizer.ggml.merges": None}, "the key tokenizer.ggml.merges"),
        ({"tokenizer.ggml.merges": ["1 9x"]}, "merges of its own tokens, and '9x' is none"),
        ({"tokenizer.ggml.merges": ["19"]}, "two tokens in each of tokenizer.ggml.merges, not '19'"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "different tokens, one for each embedding, not 2"),
        ({"tokenizer.ggml.tokens": ["a" * 2_000_000, "b"]}, "tokens of at most 1,024 letters, not 2,000,000"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "as many tokenizer.ggml.token_type as tokens, not 2"),
        ({"tokenizer.ggml.eos_token_id": 9999}, "tokenizer.ggml.eos_token_id below"),
        ({"tokenizer.ggml.eot_token_id": 2**31}, "tokenizer.ggml.eot_token_id below"),
        ({"tokenizer.ggml.eot_token_id": float("nan")}, "tokenizer.ggml.eot_token_id below"),
        ({"tokenizer.ggml.eos_token_id": None}, "tokenizer.ggml.eos_token_id, at which an answer ends"),
    ],
)
def test_what_would_be_another_model_or_cannot_be_its_tokenizer_is_refused(changes, said, tmp_path):
    path = tiny_file(tmp_path / "tiny.gguf", **changes)
    with pytest.raises(ConfigError) as refused:
        PretrainedPolicy(str(path)).tokenizer([])
    message = str(refused.value)
    assert message.startswith(f"model.policy.path is {path}; expected ")
    assert said in message
    assert "\n" not in message


def test_a_tokenizer_that_transformers_replaces_by_the_architectures_own_is_refused(tmp_path):
    """Transformers reads any tokenizer of a Qwen2 as Qwen2's, whatever its folder holds."""
    path = write_gguf(tmp_path / "tiny.gguf", tiny_model("qwen2"), byte_tokens(), "qwen2")
    with pytest.raises(ConfigError, match=r"a tokenizer that transformers reads right: of '1  2' it makes"):
        PretrainedPolicy(str(path)).tokenizer([])


def test_a_weight_that_is_no_number_is_refused(tmp_path):
    model = tiny_model()
    model.get_parameter("model.norm.weight").data[3] = torch.nan
    path = write_gguf(tmp_path / "tiny.gguf", model)
    with pytest.raises(ConfigError, match=r"finite weights, and output_norm.weight holds others"):
        PretrainedPolicy(str(path)).model(None)  # pyright: ignore
