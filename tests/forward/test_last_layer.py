"""The last layer's network at chosen positions: the same log-probs and gradients, and nothing computed that is not read."""

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from cod_lightning.forward import attention
from cod_lightning.forward.attention import use_grouped_attention
from cod_lightning.forward.last_layer import predicting, read_only_at
from cod_lightning.models import LoRAPolicy
from cod_lightning.objective.logprobs import action_logprobs
from tests.adapted import adapted, write_base
from tests.cases import each
from tests.forward.small import SMALL

EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "decoder_sparse_step": 1}


def _model(made, config):
    torch.manual_seed(0)
    return made._from_config(config)


def _grouped(made, config):
    model = _model(made, config)
    use_grouped_attention(model)
    return model


MODELS = {
    "attention written out": lambda: _grouped(Qwen3ForCausalLM, Qwen3Config(**SMALL)),
    "qwen3": lambda: _model(Qwen3ForCausalLM, Qwen3Config(**SMALL)),
    "llama": lambda: _model(LlamaForCausalLM, LlamaConfig(**SMALL)),
    "experts": lambda: _model(Qwen3MoeForCausalLM, Qwen3MoeConfig(**SMALL, **EXPERTS)),
    "layers by another name": lambda: _model(
        GPT2LMHeadModel, GPT2Config(vocab_size=20, n_embd=16, n_layer=2, n_head=2, n_positions=32)
    ),
}


def _case():
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(20, (3, 9), generator=generator)
    mask = torch.rand(3, 9, generator=generator) > 0.6
    mask[:, 0] = False
    return ids, mask


def _logprobs(model, ids, mask, positions):
    with read_only_at(model, positions):
        hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    return action_logprobs(hidden, model.get_output_embeddings(), ids, mask)[0]


def _gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@each("name", MODELS)
def test_log_probs_and_gradients_are_those_of_the_whole_computation(name):
    model, (ids, mask) = MODELS[name]().eval(), _case()
    whole = _logprobs(model, ids, mask, torch.ones_like(mask))
    cut = _logprobs(model, ids, mask, predicting(mask))
    assert torch.allclose(cut, whole, atol=1e-6)
    assert whole.abs().max() > 1
    wanted, found = _gradients(model, whole.sum()), _gradients(model, cut.sum())
    assert wanted.keys() == found.keys()
    assert all(torch.allclose(found[n], wanted[n], atol=1e-5) for n in wanted)


@pytest.fixture
def queries(monkeypatch):
    """How many queries each attention that is written out has."""
    found, written_out = [], attention._written_out
    monkeypatch.setattr(
        attention, "_written_out", lambda *given: found.append(given[0].shape[2]) or written_out(*given)
    )
    return found


def test_only_the_positions_that_are_read_are_computed(queries):
    (model, (ids, mask)), seen = (MODELS["attention written out"](), _case()), []
    last = model.model.layers[-1]
    for network in (last.mlp.gate_proj, last.self_attn.o_proj):
        network.register_forward_hook(lambda layer, args, out: seen.append(args[0].shape[:-1].numel()))
    _logprobs(model, ids, mask, predicting(mask))
    assert seen == [int(mask.sum())] * 2
    assert int(mask.sum()) < mask.numel()
    assert queries == [9, int(mask.sum(dim=1).max())]
    assert queries[1] < 9


def test_a_row_that_nobody_reads_takes_no_queries_at_all(queries):
    model, (ids, _) = MODELS["attention written out"](), _case()
    nothing = torch.zeros_like(ids, dtype=torch.bool)
    found = _logprobs(model, ids, nothing, nothing)
    assert queries == [9]
    assert not found.any()
    found.sum().backward()


def test_afterwards_the_model_is_as_before_also_where_a_pass_has_failed():
    model, (ids, mask) = MODELS["qwen3"]().eval(), _case()
    before = model(input_ids=ids).logits
    with pytest.raises(IndexError), read_only_at(model, predicting(mask)):
        model.base_model(input_ids=ids + 20)
    assert torch.equal(model(input_ids=ids).logits, before)


def test_activations_that_are_computed_again_are_computed_whole():
    model, (ids, mask) = MODELS["qwen3"]().train(), _case()
    wanted = _gradients(model, _logprobs(model, ids, mask, predicting(mask)).sum())
    model.gradient_checkpointing_enable({"use_reentrant": False})
    found = _gradients(model, _logprobs(model, ids, mask, predicting(mask)).sum())
    assert all(torch.allclose(found[n], wanted[n], atol=1e-5) for n in wanted)


def test_an_adapter_in_the_network_gets_its_gradient(tmp_path):
    model, (ids, mask) = adapted(LoRAPolicy, write_base(tmp_path)).eval(), _case()
    whole = _gradients(model, _logprobs(model, ids, mask, torch.ones_like(mask)).sum())
    cut = _gradients(model, _logprobs(model, ids, mask, predicting(mask)).sum())
    assert any("layers.1.mlp" in n for n in whole)
    assert all(torch.allclose(cut[n], whole[n], atol=1e-5) for n in whole)
