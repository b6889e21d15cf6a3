"""The memory plan against numbers computed by hand, and against what torch really keeps."""

from dataclasses import replace

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from cod_lightning.adapters import adapter_weights
from cod_lightning.forward import attention
from cod_lightning.forward.row_tree import MOST_ALIKE, RowTree
from cod_lightning.models import LoRAPolicy, PretrainedPolicy, QLoRAPolicy
from cod_lightning.models.memory_plan import GIB, activations, plan_memory
from cod_lightning.models.sizes import RunSizes, sizes_of
from tests.cases import each

QWEN3_8B = {
    "vocab_size": 151_936,
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12_288,
    "tie_word_embeddings": False,
}
LAYER = {
    "vocab_size": 64,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "intermediate_size": 768,
}
RUN = RunSizes(weight_bytes=2, activation_bytes=2, num_tokens=1000, scores_bytes=2**28, shares=False, on_gpu=False)


@pytest.fixture(scope="module")
def eight_b():
    with torch.device("meta"):
        return sizes_of(Qwen3ForCausalLM(Qwen3Config(**QWEN3_8B)), rank=32)


def items(plan):
    return {item.name: item.size for item in plan.items}


def test_the_sizes_of_qwen3_8b_are_its_published_ones(eight_b):
    per_layer = 4096 * 4096 * 2 + 2 * 4096 * 1024 + 3 * 4096 * 12_288
    assert eight_b.num_linear_weights == 36 * per_layer == 6_945_767_424
    assert eight_b.num_weights == 36 * (per_layer + 2 * 4096 + 2 * 128) + 2 * 151_936 * 4096 + 4096 == 8_190_735_360
    ends = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 12_288)
    assert eight_b.num_adapter_weights == 36 * 32 * ends == 87_293_952


def test_full_training_in_float32_takes_16_bytes_a_weight_and_the_engines_copy_4_more(eight_b):
    full = replace(eight_b, num_adapter_weights=0)
    found = items(plan_memory(full, replace(RUN, weight_bytes=4, has_reference=True), 80 * GIB, "a GPU"))
    n = 8_190_735_360
    assert (found["weights"], found["gradients"], found["optimizer"]) == (4 * n, 4 * n, 8 * n)
    assert (found["reference"], found["engine's copy"]) == (4 * n, 4 * n)


def test_qlora_takes_4_bits_a_linear_weight_and_moments_of_8(eight_b):
    run = replace(RUN, four_bit=True, eight_bit_moments=True, engine_copies_base=False, num_cached_tokens=10)
    found = items(plan_memory(eight_b, run, 24 * GIB, "a GPU"))
    linear, rest, adapter = 6_945_767_424, 8_190_735_360 - 6_945_767_424, 87_293_952
    assert found["weights"] == pytest.approx(linear * 4.126953125 / 8 + 2 * rest)
    assert found["weights"] / GIB == pytest.approx(5.656, abs=0.001)
    assert found["adapter"] == found["gradients"] == found["engine's copy"] == 4 * adapter
    assert found["optimizer"] == pytest.approx(2 * adapter * (1 + 4 / 256))
    assert found["keys and values"] == 10 * 36 * 2 * 8 * 128 * 2
    assert found["log-prob scores"] == 2**28
    assert "reference" not in found


def test_an_engine_of_its_own_precision_copies_weights_and_keeps_keys_in_it(eight_b):
    full = replace(eight_b, num_adapter_weights=0)
    run = replace(RUN, weight_bytes=4, engine_weight_bytes=2, num_cached_tokens=10, prefill_tokens=10)
    found = items(plan_memory(full, run, 80 * GIB, "a GPU"))
    assert (found["weights"], found["engine's copy"]) == (4 * 8_190_735_360, 2 * 8_190_735_360)
    assert found["keys and values"] == 10 * 36 * 2 * 8 * 128 * 2
    assert found["engine's work"] == 10 * (3 * 12_288 + 4 * 4096) * 2


def test_shards_divide_what_is_sharded_and_nothing_else(eight_b):
    whole, half = (items(plan_memory(eight_b, replace(RUN, num_shards=n), GIB, "")) for n in (1, 2))
    for name in ("weights", "adapter", "gradients", "optimizer"):
        assert half[name] == whole[name] / 2
    for name in ("engine's copy", "log-prob scores", "activations"):
        assert half[name] == whole[name]


def test_what_does_not_fit_is_told_with_the_keys_that_change_it(eight_b):
    full = plan_memory(replace(eight_b, num_adapter_weights=0), RUN, 24 * GIB, "a GPU")
    assert not full.fits
    assert full.impossible
    text = "\n".join(full.advice())
    assert "model.policy=QLoRAPolicy" in text
    assert "model.optimizer to adamw_8bit" in text
    four_bit = replace(RUN, four_bit=True, engine_copies_base=False)
    tight = plan_memory(eight_b, replace(four_bit, num_cached_tokens=10**6), 24 * GIB, "a GPU")
    assert not tight.fits
    assert not tight.impossible
    assert tight.advice()[1].strip().startswith("keys and values")
    assert "data.engine.max_dialogues" in tight.advice()[1]
    assert plan_memory(eight_b, four_bit, 24 * GIB, "a GPU").advice() == []


def saved_bytes(model, ids, autocast, **told):
    """Of all storages that autograd keeps from a forward pass, weights aside."""
    own = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}
    seen = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            seen[storage._cdata] = (storage.nbytes(), tensor)
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t),
        torch.autocast("cpu", torch.bfloat16, enabled=autocast),
    ):
        model.base_model(input_ids=ids, use_cache=False, **told)
    return sum(size for size, _ in seen.values())


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize(
    ("kind", "dtype", "autocast"),
    [
        (None, "float32", False),
        (None, "float32", True),
        (None, "bfloat16", False),
        (LoRAPolicy, "float32", False),
        (LoRAPolicy, "bfloat16", False),
        (LoRAPolicy, "bfloat16", True),
        (QLoRAPolicy, "bfloat16", True),
    ],
)
def test_activations_are_within_15_percent_of_what_autograd_saves(kind, dtype, autocast, checkpointing, tmp_path):
    measured, planned = [], []
    ids = torch.randint(0, 64, (1, 256))
    for num_layers in (1, 3):
        config = Qwen3Config(**LAYER, num_hidden_layers=num_layers)  # pyright: ignore[reportArgumentType]
        plain = Qwen3ForCausalLM(config)
        plain.save_pretrained(folder := tmp_path / str(num_layers))
        options = {"path": str(folder), "dtype": dtype, "gradient_checkpointing": checkpointing}
        policy = PretrainedPolicy(**options) if kind is None else kind(**options, rank=8)
        model = policy.model(None)  # pyright: ignore
        measured.append(saved_bytes(model, ids, autocast))
        half = autocast or dtype == "bfloat16"
        run = RunSizes(
            weight_bytes=4 if dtype == "float32" else 2,
            activation_bytes=2 if half else 4,
            autocast=autocast,
            gradient_checkpointing=checkpointing,
            num_tokens=256,
            shares=False,
            scores_bytes=0,
            on_gpu=False,
        )
        sizes = sizes_of(plain, rank=8 if kind else 0)
        assert sizes.num_adapter_weights == sum(weight.numel() for weight in adapter_weights(model).values())
        planned.append(activations(sizes, run, run.num_tokens))
    assert planned[1] - planned[0] == pytest.approx(measured[1] - measured[0], rel=0.15)


@each("num_siblings", [1, MOST_ALIKE])
def test_a_tree_of_rows_keeps_about_what_is_planned(num_siblings, monkeypatch):
    monkeypatch.setattr(attention, "_ROW", -1)  # scores that are written out are kept, too
    kept, lengths = [], torch.full((num_siblings,), 240)
    ids = torch.arange(240).expand(num_siblings, -1) % 60
    ids = torch.cat((ids[:, :-4], 60 + torch.arange(num_siblings)[:, None].expand(-1, 4)), dim=1)
    tree = RowTree(ids, lengths, ids >= 60)
    assert tree.token_ids.shape[1] == 236 + 4 * num_siblings
    for num_layers in (1, 3):
        config = Qwen3Config(**LAYER, num_hidden_layers=num_layers)  # pyright: ignore[reportArgumentType]
        model = Qwen3ForCausalLM(config)
        attention.use_grouped_attention(model)
        kept.append(saved_bytes(model, tree.token_ids, False, **tree.inputs()))
    run = RunSizes(weight_bytes=4, activation_bytes=4, num_tokens=tree.token_ids.shape[1], scores_bytes=0)
    planned = 2 * activations(sizes_of(model), run, run.num_tokens) / 3  # pyright: ignore[reportPossiblyUnboundVariable]
    assert 0.8 * planned < kept[1] - kept[0] < 1.05 * planned


@each("autocast", [False, True])
def test_scores_that_are_written_out_are_planned_as_for_rows_that_see_all(autocast, monkeypatch):
    config = Qwen3Config(**LAYER, num_hidden_layers=2)  # pyright: ignore[reportArgumentType]
    model = Qwen3ForCausalLM(config)
    attention.use_grouped_attention(model)
    ids = torch.randint(0, 64, (1, 256))
    run = replace(RUN, weight_bytes=4, activation_bytes=2 if autocast else 4, num_tokens=256, longest_row=256)
    planned = items(plan_memory(sizes_of(model), run, 24 * GIB, ""))["attention scores"]
    written = saved_bytes(model, ids, autocast)
    monkeypatch.setattr(attention, "_ROW", -1)
    apart = written - saved_bytes(model, ids, autocast)
    assert 0.5 * planned < apart < planned, "each of four times 64 queries sees what is before its last"
