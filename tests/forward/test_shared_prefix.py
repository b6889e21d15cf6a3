"""What rows begin with is computed once: the same log-probs and gradients as row by row."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from cod_lightning.forward.attention import use_grouped_attention
from cod_lightning.forward.logits import output_layer
from cod_lightning.forward.shared_prefix import prefix_cache, shared_prefix, takes_prefix
from cod_lightning.modules.policy import PolicyModule
from tests.dense_logprobs import token_logprobs
from tests.forward.small import SMALL

LOCAL = {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"]}
MODELS = {
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SMALL)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SMALL)),
    "a local layer": lambda: Gemma3ForCausalLM(Gemma3TextConfig(**SMALL, **LOCAL)),
}


class Rows(SimpleNamespace):
    """Of a batch what log-probs need."""


def _rows(shared: int = 8) -> Rows:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(20, (4, 14), generator=generator)
    ids[:, :shared], ids[1:, shared] = ids[0, :shared], (ids[0, shared] + 1) % 20
    mask = torch.zeros(4, 14, dtype=torch.bool)
    mask[:, 10:12] = mask[:2, 13] = True
    return Rows(token_ids=ids, action_mask=mask, lengths=torch.tensor([14, 14, 12, 12]))


def _scored(model, rows, **options):
    module = SimpleNamespace(trainer=SimpleNamespace(strategy=None))
    return PolicyModule._scored(module, model, rows, **options)  # pyright: ignore


def _gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_log_probs_entropies_and_gradients_are_those_of_whole_rows(name, grouped, monkeypatch):
    torch.manual_seed(0)
    model, rows = MODELS[name]().eval(), _rows()
    if grouped:
        use_grouped_attention(model)
    assert takes_prefix(model)
    assert shared_prefix(rows.token_ids, rows.action_mask, rows.lengths) == 8
    found, entropies = _scored(model, rows, entropy_gradient=True)
    ours = _gradients(model, found.sum() + 0.3 * entropies.sum())
    logits = output_layer(model)(model.base_model(input_ids=rows.token_ids).last_hidden_state)
    wanted = token_logprobs(logits, rows.token_ids) * rows.action_mask
    scores = logits.log_softmax(-1).roll(1, dims=1)
    entropy = -(scores.exp() * scores).sum(-1) * rows.action_mask
    theirs = _gradients(model, wanted.sum() + 0.3 * entropy.sum())
    assert torch.allclose(found, wanted, atol=1e-5)
    assert wanted.abs().max() > 1
    assert torch.allclose(entropies, entropy, atol=1e-5)
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[n], theirs[n], atol=1e-4) for n in ours)


def test_each_token_of_the_prefix_is_computed_once():
    model, rows, seen = MODELS["qwen3"](), _rows(), []
    model.model.layers[0].mlp.register_forward_hook(lambda layer, args, out: seen.append(args[0].shape[:-1].numel()))
    _scored(model, rows)
    assert seen == [8, 4 * (14 - 8)]


@given(st.data())
def test_the_prefix_is_the_longest_that_predicts_nothing_and_is_in_all_rows(data):
    rows, width = data.draw(st.integers(1, 4)), data.draw(st.integers(2, 8))
    bits = st.lists(st.lists(st.integers(0, 1), min_size=width, max_size=width), min_size=rows, max_size=rows)
    ids, mask = torch.tensor(data.draw(bits)), torch.tensor(data.draw(bits)).bool()
    lengths = torch.tensor(data.draw(st.lists(st.integers(1, width), min_size=rows, max_size=rows)))
    longest = 0
    for count in range(1, int(lengths.min())):
        if all(bool((row[:count] == ids[0, :count]).all()) for row in ids) and not mask[:, 1 : count + 1].any():
            longest = count
    pays = longest * (rows - 1) >= 0.1 * rows * width
    assert shared_prefix(ids, mask, lengths) == (longest if pays else 0)


def test_it_is_left_where_activations_are_computed_again_and_where_more_than_keys_and_values_is_left_behind():
    model = MODELS["qwen3"]().train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    assert not takes_prefix(model)
    assert takes_prefix(model.eval())
    assert not takes_prefix(MambaForCausalLM(MambaConfig(vocab_size=20, hidden_size=16, num_hidden_layers=1)))


def test_what_is_kept_of_the_prefix_has_a_gradient():
    model = MODELS["qwen3"]()
    cache = prefix_cache(model, torch.tensor([[1, 2, 3]]), rows=5)
    assert cache.layers[0].keys.shape == (5, 2, 3, 4)
    assert cache.layers[0].keys.requires_grad
