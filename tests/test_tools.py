"""A checkpoint that calls tools, trained in the apps end to end: calls read and answered by its template, drift 0."""

import json

import pytest
import torch
from transformers import AutoTokenizer, Qwen3ForCausalLM

from tests.random_checkpoint import saved_checkpoint, trained
from tests.real_templates import QWEN3_TOOLS

CALLS = [f'<tool_call>\n{{"name": "user.{name}", "arguments": {{}}}}\n</tool_call>' for name in ("apps", "passwords")]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A model that makes two calls, each a token, whatever was said before: it attends to nothing."""
    folder = saved_checkpoint(tmp_path_factory.mktemp("calling"), QWEN3_TOOLS)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), Qwen3ForCausalLM.from_pretrained(folder)
    tokenizer.add_tokens(CALLS)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    last = tokenizer("</think>\n\n", add_special_tokens=False).input_ids[-1]
    chain = torch.tensor([[last, *tokenizer.convert_tokens_to_ids([*CALLS, "<|im_end|>"])]])
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.o_proj.weight).requires_grad_(False)
    optimizer = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    for _ in range(60):
        loss = model(input_ids=chain, labels=chain).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1e-2
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


SETTINGS = {
    "data.max_new_tokens": 96,
    "data.env.actions": "tools",
    "data.env.max_turns": 8,
    "data.env.difficulties": "[1]",
    "data.env.quirks": 0,
    "data.enable_thinking": "false",
}
OF_ENGINES = {"TransformersEngine": {}, "VLLMEngine": {"data.engine.kv_cache_gb": 0.25, "data.engine.sleep": "false"}}
"""In place of the recipe's, which are for a GPU."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("TransformersEngine", marks=pytest.mark.slow),
        pytest.param("VLLMEngine", marks=[pytest.mark.vllm, pytest.mark.soak]),  # ids in, ids out: it reads no call
    ],
)
def test_calls_are_answered_in_the_tools_role_and_trained_on_without_drift(engine, checkpoint, tmp_path):
    (tmp_path / "theirs.yaml").write_text("defaults:\n  - recipe: qwen3_8b\n  - env: apps\n  - _self_\n")
    assert trained(tmp_path, checkpoint, engine, **SETTINGS, **OF_ENGINES[engine]) == [(0, 0)] * 2
    written = (tmp_path / "run" / "lifecycles" / "train.jsonl").read_text().splitlines()
    lives = list(map(json.loads, written))
    solves = [episode["turns"] for life in lives for episode in life["episodes"] if episode["kind"] == "solve"]
    later = [turn for turns in solves for turn in turns[1:]]
    assert len(later) >= 4 * len(solves)
    for turn in later:
        assert turn["extends"]
        first, second, state = turn["observation"].splitlines()
        assert first.startswith('{"mail": "Electronic mail')
        assert second.startswith(('{"mail": ', "error 429: the calls of this task are used up"))
        assert state.startswith("Calls left: ")
    shown = AutoTokenizer.from_pretrained(checkpoint).decode(later[0]["new_ids"])
    assert shown.count("<tool_response>") == 2
    assert shown.endswith("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
