"""Decoding by recorded passes: the same hidden states as a packed pass, whatever the unused slots hold; on a GPU by CUDA graphs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from cod_lightning.forward.decode_graphs import DecodeGraphs, rounded
from cod_lightning.forward.packed import PackedForward, packs
from tests.forward.rows import rows_of
from tests.forward.small import SMALL

MAKES = {
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {}),
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "gemma2": (Gemma2ForCausalLM, Gemma2Config, {"sliding_window": 4, "query_pre_attn_scalar": 8}),
}


def _forward(name, device="cpu", *, recorded):
    torch.manual_seed(0)
    made, config, more = MAKES[name]
    model = made._from_config(config(**SMALL, **more)).eval().to(device)
    assert packs(model) or name == "gemma2"
    forward = PackedForward(model)
    forward._decode = DecodeGraphs(forward._one_each) if recorded else None
    return forward


def _played(forward, dialogues, seed):
    """Hidden states along dialogues that begin with prompts and go on token by token, some pausing, some joining late."""
    cache, rng = forward.new_cache(12, None), np.random.default_rng(seed)
    slots = rng.permutation(12)[: len(dialogues)].tolist()
    fed, found = [0] * len(dialogues), []
    with torch.inference_mode():
        for step in range(8):
            live = [
                d
                for d, (prompt, more) in enumerate(dialogues)
                if fed[d] < len(prompt) + len(more) and (d + step) % 3 and (step or d % 2)
            ]
            live = sorted(live, key=lambda d: fed[d] == 0)  # those in flight first, as the engine has them
            new = [[dialogues[d][1][fed[d] - len(dialogues[d][0])]] if fed[d] else dialogues[d][0] for d in live]
            if live:
                hidden = forward(rows_of([slots[d] for d in live], [fed[d] for d in live], new), cache)
                found += [row.float().cpu() for row in hidden]
                for d, ids in zip(live, new, strict=True):
                    fed[d] += len(ids)
    return torch.stack(found)


def test_a_cache_is_where_its_model_is_before_anything_is_written_for_a_prompt_of_one_token_may_come_first():
    assert _forward("qwen3", "meta", recorded=False).new_cache(4, 8).device.type == "meta"


IDS = st.lists(st.integers(0, 19), min_size=2, max_size=9)


@settings(deadline=None, max_examples=8)
@given(dialogues=st.lists(st.tuples(IDS, IDS), min_size=2, max_size=9), seed=st.integers(0, 99))
@pytest.mark.parametrize("name", ["qwen3", "gemma2", pytest.param("llama", marks=pytest.mark.slow)])
def test_recorded_passes_give_what_packed_passes_give(name, dialogues, seed):
    expected = _played(_forward(name, recorded=False), dialogues, seed)
    found = _played(_forward(name, recorded=True), dialogues, seed)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_few_sizes_serve_all_numbers_of_slots():
    sizes = {rounded(number) for number in range(1, 513)}
    assert len(sizes) <= 13
    assert all(number <= rounded(number) < max(9, 2 * number) for number in range(1, 513))


@pytest.mark.gpu
@pytest.mark.parametrize("name", list(MAKES))
def test_graphs_give_what_packed_passes_give_on_a_gpu(name):
    dialogues = [(list(range(2, 5 + d)), list(range(1, 9))) for d in range(9)]
    expected = _played(_forward(name, "cuda", recorded=False), dialogues, 3)
    forward = _forward(name, "cuda", recorded=True)
    torch.testing.assert_close(_played(forward, dialogues, 3), expected, atol=1e-4, rtol=1e-3)
    assert forward._decode._recorded, "no graph was recorded"
    torch.testing.assert_close(_played(forward, dialogues, 3), expected, atol=1e-4, rtol=1e-3)
