"""Families of models, tiny and random: engine and training forward against the model's own logits."""

import asyncio
import random
from types import SimpleNamespace

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from cod_lightning.engines.base import Request
from cod_lightning.errors import ConfigError
from cod_lightning.forward.attention import use_grouped_attention
from cod_lightning.forward.last_layer import output_layer
from cod_lightning.forward.rms_norm import use_rms_norm
from cod_lightning.models import PretrainedPolicy
from cod_lightning.models.pretrained import attention_of
from cod_lightning.modules.policy import PolicyModule, _leave_out_dropout
from cod_lightning.training.scorers import CheckpointScorer
from tests.cases import each
from tests.dense_logprobs import token_logprobs
from tests.families import FAMILIES, made, saved
from tests.word_play import ask, reference_logprobs, request, sampling_from

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
    engine = sampling_from(model, [2])
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
    found = trained_logprobs(model, ids, mask, [24, 19, 19], token_budget=1)  # as a tree wherever the model takes one
    torch.testing.assert_close(found, expected.detach(), atol=1e-3, rtol=1e-3)
    found.sum().backward()
    for key, weight in model.named_parameters():
        if key in wanted and "router" not in key:
            torch.testing.assert_close(weight.grad, wanted[key], atol=2e-2, rtol=2e-2, msg=lambda m, k=key: f"{k}: {m}")


def trained_logprobs(model, token_ids, action_mask, lengths, token_budget=None):
    """By the training forward, of padded rows."""
    module = SimpleNamespace(token_budget=token_budget)
    module._takes_tree = lambda model: PolicyModule._takes_tree(module, model)  # pyright: ignore
    rows = SimpleNamespace(token_ids=token_ids, action_mask=action_mask, lengths=torch.tensor(lengths))
    return PolicyModule._scored(module, model, rows)[0]  # pyright: ignore


def test_rotary_frequencies_that_change_with_the_length_are_the_same_for_all_rows_of_a_run(tmp_path):
    turns = {"short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 8.0, 16.0], "original_max_position_embeddings": 32}
    rope = {"rope_type": "longrope", "rope_theta": 10_000.0, "partial_rotary_factor": 1.0, "factor": 4.0} | turns
    saved(tmp_path, "phi3", std=0.3, rope_parameters=rope, original_max_position_embeddings=32)
    plain = PretrainedPolicy(str(tmp_path), "float32", window=32).model(None).eval()  # pyright: ignore
    policy = PretrainedPolicy(str(tmp_path), "float32", window=64)
    model, drawn = policy.model(None).eval(), torch.Generator().manual_seed(0)  # pyright: ignore
    assert policy.skeleton().config.rope_parameters == model.config.rope_parameters
    ids = torch.randint(3, 64, (2, 60), generator=drawn)
    mask = torch.zeros(2, 60, dtype=torch.bool)
    mask[0, 50:] = mask[1, 12:20] = True
    with torch.no_grad():
        found = trained_logprobs(model, ids, mask, [60, 20])
        torch.testing.assert_close(found[:1], token_logprobs(model(ids[:1]).logits, ids[:1]) * mask[:1])
        alone = token_logprobs(model(ids[1:, :20]).logits, ids[1:, :20]) * mask[1:, :20]
        torch.testing.assert_close(found[1:, :20], alone)
        assert (token_logprobs(plain(ids[1:, :20]).logits, ids[1:, :20])[0, 12:] - alone[0, 12:]).abs().max() > 0.1
    engine = sampling_from(model, [2])

    prompts = [ids[0, :30].tolist(), ids[1, :9].tolist()]
    for prompt, answer in zip(
        prompts, ask(engine, *(request(p, str(len(p)), max_new_tokens=8) for p in prompts)), strict=True
    ):
        scores = reference_logprobs(model, [*prompt, *answer.action_ids])
        for t, token in enumerate(answer.action_ids, len(prompt)):
            behaviour = answer.behaviour_logprobs[t - len(prompt)]
            assert behaviour == pytest.approx(float(scores[t - 1, token]), abs=1e-4)


@each(("name", "more"), [("gemma2", {"attn_logit_softcapping": 2.0}), ("gpt_oss", {})])
def test_a_teacher_attends_as_its_own_code_does(name, more, tmp_path):
    teacher = CheckpointScorer(str(saved(tmp_path, name, std=0.3, **more)))
    ids = torch.randint(3, 64, (2, 24), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(24).expand(2, 24) > 12
    rows = SimpleNamespace(token_ids=ids, action_mask=mask, lengths=[24, 24])
    with torch.no_grad():
        found = teacher.score(rows, lambda model, rows: trained_logprobs(model, **vars(rows)))  # pyright: ignore
        teacher.weights.set_attn_implementation("eager")
        expected = token_logprobs(teacher.weights(ids).logits, ids) * mask
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@each("name", ["glm_moe_dsa", "deepseek_v32"])
def test_a_model_that_chooses_few_keys_for_each_query_attends_to_these_alone(name):
    chosen = {"index_topk": 4, "index_head_dim": 8, "index_n_heads": 2}
    config = CONFIG_MAPPING[name](**FAMILIES["deepseek_v3"] | chosen)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention_of(config)).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    ids = torch.randint(3, 64, (2, 24), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(24).expand(2, 24) > 12
    with torch.no_grad():
        expected = token_logprobs(model(ids).logits, ids) * mask
        use_grouped_attention(model)
        torch.testing.assert_close(trained_logprobs(model, ids, mask, [24, 24]), expected, atol=1e-4, rtol=1e-4)
        (answer,) = ask(sampling_from(model, [2]), request(ids[0, :20].tolist(), "one", max_new_tokens=1))
        scores = torch.log_softmax(model(ids[:1, :20]).logits[0, -1], dim=-1)
        assert answer.behaviour_logprobs[0] == pytest.approx(float(scores[answer.action_ids[0]]), abs=1e-4)


def test_what_a_model_draws_in_training_alone_is_left_out():
    model = made("mixtral", router_jitter_noise=0.1, attention_dropout=0.1).train()
    _leave_out_dropout(model)
    ids = torch.randint(3, 64, (2, 24), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, model.eval()(ids).logits)


def test_a_model_that_makes_its_logits_in_another_way_is_refused(monkeypatch):
    model = made("llama")
    forward = type(model).forward

    def squared(self, *args, **kwargs):
        out = forward(self, *args, **kwargs)
        out.logits = out.logits**2
        return out

    monkeypatch.setattr(type(model), "forward", squared)
    with pytest.raises(ConfigError, match=r"model.policy is LlamaForCausalLM"):
        output_layer(model)
