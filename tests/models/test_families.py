"""Families of models, tiny and random: engine and training forward against the model's own logits."""

import asyncio
import random
from types import SimpleNamespace

import pytest
import torch

from cod_lightning.engines.base import Request
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.errors import ConfigError
from cod_lightning.forward.attention import use_grouped_attention
from cod_lightning.forward.last_layer import output_layer
from cod_lightning.forward.packed import packs
from cod_lightning.forward.rms_norm import use_rms_norm
from cod_lightning.modules.policy import PolicyModule
from tests.cases import each
from tests.dense_logprobs import token_logprobs
from tests.families import FAMILIES, made

OFTEN = "llama", "mixtral", "qwen3_5_text", "gemma2", "granite", "cohere2", "deepseek_v3", "gpt_oss", "opt"
"""One of each kind of attention, of experts and of logits; those like them are slow."""
every_family = each("name", OFTEN, slow=[name for name in FAMILIES if name not in OFTEN])
ONE_BY_ONE = {"qwen3_next", "qwen3_5_text", "gpt_oss"}
"""Recurrent, or with attention of its own."""


def own_logits(model, ids):
    """Logits of the model's own code: softly capped attention is not in torch's kernel."""
    before = model.config._attn_implementation
    if getattr(model.config, "attn_logit_softcapping", None):
        model.set_attn_implementation("eager")
    try:
        return model(torch.as_tensor(ids)).logits
    finally:
        model.set_attn_implementation(before)


@every_family
def test_turns_of_the_engine_have_the_log_probs_of_the_model_s_own_logits(name):
    model, drawn = made(name), random.Random(0)
    engine = TransformersEngine()
    engine.bind(model, [2])
    engine.update_weights(model.state_dict().items(), policy_version=1)
    assert type(engine.decoder.forward).__name__ == ("OneByOne" if name in ONE_BY_ONE else "PackedForward")

    async def dialogue(number):
        ids, turns = [drawn.randrange(3, 64) for _ in range(6 + 7 * number)], []
        for turn in range(2):
            seed = 10 * number + turn
            asked = Request(dialogue=str(number), prompt_ids=tuple(ids), messages=(), max_new_tokens=4, noise_seed=seed)
            answer = await engine.generate(asked)
            turns.append((len(ids), answer))
            ids += [*answer.action_ids, *(drawn.randrange(3, 64) for _ in range(3))]
        engine.release(str(number))
        return ids, turns

    async def both():
        return await asyncio.gather(dialogue(0), dialogue(1))

    for ids, turns in asyncio.run(both()):
        with torch.no_grad():
            logprobs = torch.log_softmax(own_logits(model, [ids])[0], dim=-1)
        for begin, answer in turns:
            for t, (token, behaviour) in enumerate(
                zip(answer.action_ids, answer.behaviour_logprobs, strict=True), begin
            ):
                assert behaviour == pytest.approx(float(logprobs[t - 1, token]), abs=1e-3)


@every_family
def test_the_training_forward_has_the_log_probs_and_gradients_of_the_model_s_own_logits(name):
    model = made(name)
    ids = torch.randint(3, 64, (3, 24), generator=torch.Generator().manual_seed(0))
    ids[:, :14] = ids[0, :14]
    mask = torch.zeros(3, 24, dtype=torch.bool)
    mask[:, 17:19] = mask[0, 22:] = True
    expected = token_logprobs(own_logits(model, ids), ids) * mask
    expected.sum().backward()
    wanted = {key: weight.grad.clone() for key, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    use_grouped_attention(model)
    use_rms_norm(model)
    rows = SimpleNamespace(token_ids=ids, action_mask=mask, lengths=torch.tensor([24, 19, 19]))
    module = SimpleNamespace(token_budget=1)  # as a tree wherever the model takes one
    module._takes_tree = lambda model: PolicyModule._takes_tree(module, model)  # pyright: ignore
    found, _ = PolicyModule._scored(module, model, rows)  # pyright: ignore
    torch.testing.assert_close(found, expected.detach(), atol=1e-3, rtol=1e-3)
    found.sum().backward()
    for key, weight in model.named_parameters():
        if key in wanted and "router" not in key:
            torch.testing.assert_close(weight.grad, wanted[key], atol=2e-2, rtol=2e-2, msg=lambda m, k=key: f"{k}: {m}")


def test_a_model_that_makes_its_logits_in_another_way_is_refused(monkeypatch):
    model = made("llama")
    forward = type(model).forward

    def squared(self, *args, **kwargs):
        out = forward(self, *args, **kwargs)
        out.logits = out.logits**2
        return out

    monkeypatch.setattr(type(model), "forward", squared)
    with pytest.raises(ConfigError, match=r"model.policy is LlamaForCausalLM; expected a model whose logits"):
        output_layer(model)


def test_a_model_with_recurrent_layers_is_not_packed():
    assert not packs(made("qwen3_5_text"))
    assert packs(made("mistral"))
