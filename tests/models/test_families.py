"""Families of models, tiny and random: engine and training forward against the model's own logits."""

import asyncio
import random
from types import SimpleNamespace

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from cod_lightning.engines.base import Request
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.errors import ConfigError
from cod_lightning.forward.attention import use_grouped_attention
from cod_lightning.forward.logits import output_layer
from cod_lightning.forward.packed import packs
from cod_lightning.forward.rms_norm import use_rms_norm
from cod_lightning.models.pretrained import attention_of
from modules.policy import PolicyModule
from tests.dense_logprobs import token_logprobs

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6}
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1}
RECURRENT = {
    "num_hidden_layers": 4,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
}
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}
"""A window shorter than the rows of these tests."""
WITHOUT_WIDTH = {key: value for key, value in SIZES.items() if key != "head_dim"} | {"num_key_value_heads": 4}
FAMILIES = {
    "llama": SIZES,
    "mistral": SIZES | {"sliding_window": 8},
    "mixtral": SIZES | {"num_local_experts": 4},
    "qwen2": SIZES,
    "qwen3": SIZES,
    "qwen3_moe": SIZES | EXPERTS,
    "qwen3_next": SIZES | EXPERTS | RECURRENT | {"shared_expert_intermediate_size": 16},
    "qwen3_5_text": SIZES | RECURRENT,
    "gemma2": SIZES | SLIDING,
    "gemma3_text": SIZES | SLIDING,
    "phi3": SIZES,
    "olmo2": SIZES,
    "olmo3": SIZES | SLIDING,
    "granite": SIZES | {"logits_scaling": 8.0},
    "glm4": SIZES,
    "glm4_moe": SIZES | ROUTED | {"first_k_dense_replace": 1},
    "cohere2": SIZES | SLIDING,
    "smollm3": SIZES,
    "deepseek_v3": WITHOUT_WIDTH | ROUTED | LATENT | {"first_k_dense_replace": 1},
    "gpt_oss": SIZES | SLIDING | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "opt": SIZES | {"ffn_dim": 48, "word_embed_proj_dim": 32},
}
ONE_BY_ONE = {"qwen3_next", "qwen3_5_text", "gpt_oss"}
"""Recurrent, or with attention of its own."""


def made(name):
    """The family's model with weights large enough that wrong logits show."""
    torch.manual_seed(0)
    config = CONFIG_MAPPING[name](**FAMILIES[name])
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention_of(config)).float().eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def own_logits(model, ids):
    """Logits of the model's own code: softly capped attention is not in torch's kernel."""
    before = model.config._attn_implementation
    if getattr(model.config, "attn_logit_softcapping", None):
        model.set_attn_implementation("eager")
    try:
        return model(torch.as_tensor(ids)).logits
    finally:
        model.set_attn_implementation(before)


@pytest.mark.parametrize("name", FAMILIES)
def test_turns_of_the_engine_have_the_log_probs_of_the_model_s_own_logits(name):
    model, drawn = made(name), random.Random(0)
    engine = TransformersEngine()
    engine.bind(model, [2])
    engine.update_weights(model.state_dict().items(), policy_version=1)
    assert type(engine._forward).__name__ == ("OneByOne" if name in ONE_BY_ONE else "PackedForward")

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


@pytest.mark.parametrize("name", FAMILIES)
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
    module = SimpleNamespace(trainer=SimpleNamespace(strategy=None))
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
