"""Policies with an adapter: what is trained, what is kept, and that 4 bits change neither gradients nor what is sampled."""

import copy
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version

import pytest
import torch
from jsonargparse import ArgumentError, ArgumentParser
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from cod_lightning import extras
from cod_lightning.adapters import (
    adapter_weights,
    base_weights,
    has_adapter,
    is_adapter,
    plain_weights,
    synced_weights,
    without_adapter,
    write_adapter,
    write_adapter_config,
)
from cod_lightning.engines.self_test import SelfTest
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.engines.vllm_start import room_for
from cod_lightning.errors import ConfigError, DataError
from cod_lightning.models import LoRAPolicy, QLoRAPolicy
from cod_lightning.models.base import Policy
from cod_lightning.models.lora import merged
from cod_lightning.modules import GRPOModule
from tests.adapted import adapted, step, write_base
from tests.cases import each
from tests.families import saved

KINDS = each("kind", [LoRAPolicy, QLoRAPolicy])
IDS = torch.randint(6, 40, (2, 60), generator=torch.Generator().manual_seed(1))


def gradients(model, training=True):
    """Of the adapter, for the log-probs of fixed tokens."""
    model.train(training).zero_grad()
    logits = model(IDS).logits[:, :-1]
    torch.log_softmax(logits.float(), -1).gather(2, IDS[:, 1:, None]).sum().backward()
    return torch.cat([weight.grad.flatten() for weight in adapter_weights(model).values()])


def pretended(versions):
    """`importlib.metadata.version` with these in place of what is installed; None: is not."""

    def version_of(name):
        if (found := versions.get(name, "")) is None:
            raise PackageNotFoundError
        return found or version(name)

    return version_of


@KINDS
def test_only_the_adapter_is_trained_and_it_is_in_float32(kind, base):
    model = adapted(kind, base, dtype="bfloat16")
    for name, weight in model.named_parameters():
        assert weight.requires_grad == is_adapter(name)
        assert not is_adapter(name) or weight.dtype == torch.float32
    assert model.config._attn_implementation == "sdpa"


def test_only_weights_that_stay_as_they_are_may_be_in_float16(base):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Policy, "policy")

    def built(name, **options):
        chosen = {"class_path": f"cod_lightning.models.{name}", "init_args": {"path": str(base), **options}}
        return parser.instantiate_classes(parser.parse_object({"policy": chosen})).policy

    model = built("LoRAPolicy", rank=4, dtype="float16").model(None)
    assert {is_adapter(name): weight.dtype for name, weight in model.named_parameters()} == {
        True: torch.float32,
        False: torch.float16,
    }
    with pytest.raises(ArgumentError, match="float16"):
        built("PretrainedPolicy", dtype="float16")


@KINDS
def test_a_base_with_nothing_to_adapt_is_refused_in_the_words_of_peft(kind, tmp_path):
    config = LlamaConfig(vocab_size=8, hidden_size=64, num_hidden_layers=0, num_attention_heads=2, intermediate_size=64)
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="target_modules"):
        kind(str(tmp_path), dtype="float32", rank=4).model(None)


def test_gradients_in_4_bits_are_those_of_the_dequantised_weights_also_after_a_validation(base):
    model = adapted(QLoRAPolicy, base)
    reference = adapted(LoRAPolicy, base)
    with torch.no_grad():
        plain = dict(plain_weights(model, merge=False))
        for name, weight in reference.named_parameters():
            weight.copy_(adapter_weights(model).get(name, plain.get(name.replace(".base_layer.", "."))))
    expected = gradients(reference)
    assert torch.cosine_similarity(gradients(model), expected, dim=0) >= 0.99
    with torch.inference_mode():
        model.eval()(IDS)
    for _ in range(2):
        assert torch.cosine_similarity(gradients(model), expected, dim=0) >= 0.99


def test_the_cure_of_the_gradient_trap_is_needed_or_harmless(base):
    """Where the CPU has AVX512-BF16, the switch is what keeps packed weights from being replaced."""
    from bitsandbytes.nn.modules import Linear4bit

    layers = [m for m in adapted(QLoRAPolicy, base).modules() if isinstance(m, Linear4bit)]
    assert len(layers) == 14
    assert not any(layer.support_avx512bf16_for_cpu for layer in layers)
    assert all(layer.weight.quant_state.nested for layer in layers)
    assert {layer.weight.quant_state.quant_type for layer in layers} == {"nf4"}


@KINDS
def test_checkpointed_activations_give_the_same_gradients(kind, base):
    plain, less = adapted(kind, base), adapted(kind, base, gradient_checkpointing=True)
    torch.testing.assert_close(gradients(less), gradients(plain), rtol=1e-4, atol=1e-5)
    assert less.is_gradient_checkpointing


@KINDS
def test_without_its_adapter_the_model_is_the_base_and_then_itself_again(kind, base):
    model = adapted(kind, base)
    new: torch.nn.Module = kind(path=str(base), dtype="float32").model(None)  # pyright: ignore
    with torch.no_grad():
        before, initial = model(IDS).logits, new(IDS).logits
        with without_adapter(model):
            torch.testing.assert_close(model(IDS).logits, initial)
        torch.testing.assert_close(model(IDS).logits, before)
    assert not torch.allclose(before, initial, atol=1e-2)
    assert all(weight.requires_grad for weight in adapter_weights(model).values())


@KINDS
def test_a_merged_model_is_plain_and_says_the_same(kind, base):
    model = adapted(kind, base).eval()
    plain = merged(model).eval()
    assert not has_adapter(plain)
    assert "quantization_config" not in plain.config.to_dict()
    with torch.no_grad():
        torch.testing.assert_close(plain(IDS).logits, model(IDS).logits, rtol=1e-4, atol=1e-4)
    assert plain.get_output_embeddings().weight is plain.get_input_embeddings().weight


def biases(model):
    """Of routers, which are buffers, kept in float32."""
    return [buffer for name, buffer in model.named_buffers() if name.endswith("correction_bias")]


@pytest.mark.filterwarnings("ignore:The following (rank|alpha)_pattern")  # peft looks for modules, these are tensors
@each("name", ["deepseek_v3"], slow=["mixtral", "qwen3_moe", "glm4_moe"])
def test_adapters_of_experts_are_merged_and_written_like_others_beside_the_biases_of_a_router(name, tmp_path):
    base = saved(tmp_path / "base", name)
    model, half = adapted(LoRAPolicy, base).eval(), adapted(LoRAPolicy, base, dtype="bfloat16")
    read = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    for three in zip(biases(model), biases(half), biases(read), strict=True):
        for bias in three:
            bias.copy_(torch.linspace(-1, 1, len(bias)))
    write_adapter(adapter_weights(model), tmp_path)
    write_adapter_config(model, tmp_path)
    read.load_adapter(str(tmp_path))
    plain = merged(model)
    assert dict(plain_weights(model, merge=False)).keys() == plain.state_dict().keys()
    assert all(map(torch.equal, biases(merged(half)), biases(half)))
    with torch.no_grad():
        expected = model(IDS).logits
        with without_adapter(model):
            assert not torch.allclose(model(IDS).logits, expected, atol=1e-2)
        for other in (plain, read):
            torch.testing.assert_close(other.eval()(IDS).logits, expected, rtol=1e-4, atol=1e-5)


@KINDS
def test_the_engine_shares_the_base_and_decodes_the_adapter_exactly(kind, base):
    model, engine = adapted(kind, base), TransformersEngine()
    engine.bind(model, stop_ids=[2])
    served = engine._bound().model
    for name, weight in model.named_parameters():
        assert (served.get_parameter(name) is weight) == (not is_adapter(name))
    for number in range(5):
        step(model, number)
        engine.update_weights(adapter_weights(model).items(), number)
        assert SelfTest()(engine, model, window=256).size <= 1e-5
    assert model.training
    assert all(weight.requires_grad for weight in adapter_weights(model).values())


@KINDS
def test_an_engine_that_takes_no_adapters_is_sent_all_weights_merged(kind, base):
    model = adapted(kind, base)
    sent = dict(synced_weights(model, adapter=False))
    assert sent.keys() == merged(model).state_dict().keys()
    engine, plain = TransformersEngine(), merged(model)
    engine.bind(plain, stop_ids=[2])
    engine.update_weights(sent.items(), 0)
    assert SelfTest()(engine, model, window=256).size <= 1e-4


@each(
    ("options", "said"),
    [
        ({"targets": ["q_prj"]}, "model.policy.targets is q_prj"),
        ({"targets": ["q_proj", "lm_head"]}, "model.policy.targets is lm_head"),
        ({"path": None}, "model.policy.path is null"),
    ],
)
def test_a_setting_that_cannot_work_is_named(options, said, base):
    with pytest.raises(ConfigError, match=said):
        adapted(LoRAPolicy, base, **options)


@each(("package", "kind"), [("peft", LoRAPolicy), ("bitsandbytes", QLoRAPolicy)])
@each("installed", [None, "0.1"])
def test_a_missing_or_old_package_is_named_before_a_model_is_made(package, kind, installed, monkeypatch):
    monkeypatch.setattr(extras, "version", pretended({package: installed}))
    policy = kind(path="anywhere")
    for needing in (policy.check_machine, lambda: policy.model(None)):
        with pytest.raises(ConfigError, match=rf"{package}.*pip install '{package}>="):
            needing()


def test_an_optimizer_whose_package_is_missing_is_refused_before_anything_is_trained(monkeypatch):
    monkeypatch.setattr(extras, "version", pretended({"bitsandbytes": None}))
    module = GRPOModule(LoRAPolicy(path="anywhere"), optimizer="adamw_8bit")
    with pytest.raises(ConfigError, match=r"model\.optimizer is adamw_8bit"):
        module.check_strategy("SingleDeviceStrategy")


@each(("rank", "room"), [(1, 8), (8, 8), (12, 16), (512, 512)])
def test_vllm_is_started_with_room_for_the_rank(rank, room):
    assert room_for(rank) == room


def test_the_digest_of_a_base_tells_weights_and_precision_apart(base, tmp_path):
    other = write_base(tmp_path, seed=1)
    kept = base_weights(adapted(LoRAPolicy, base), "a")
    assert base_weights(adapted(LoRAPolicy, base, rank=8), "b").digest == kept.digest
    kept.check(asdict(kept) | {"name": "moved"}, "last.ckpt")
    for kind, folder, dtype, what in (
        (LoRAPolicy, other, "float32", "weights"),
        (QLoRAPolicy, base, "float32", "weights"),
        (LoRAPolicy, base, "bfloat16", "weights"),
    ):
        found = base_weights(adapted(kind, folder, dtype=dtype), "here")
        with pytest.raises(DataError, match=f"for a in float32; the base here.*has other {what}"):
            found.check(asdict(kept), "last.ckpt")


def test_a_copy_of_the_model_is_no_part_of_another(base):
    model = adapted(QLoRAPolicy, base)
    other = copy.deepcopy(model)
    step(other)
    assert not torch.equal(gradients(model), gradients(other))
