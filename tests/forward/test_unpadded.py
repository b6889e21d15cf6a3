"""Rows that go through a model without padding: log-probs, entropies and gradients of the padded ones."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import flash_attention_mask

from cod_lightning.forward import unpadded
from cod_lightning.forward.attention import use_grouped_attention
from cod_lightning.forward.unpadded import Unpadded
from cod_lightning.modules.policy import PolicyModule
from tests.families import FAMILIES, every_day, made

RECURRENT = {"qwen3_next", "qwen3_5_text"}
OWN_CODE = {"gpt_oss"}
WIDTH = 14


def _flash(module, query, key, value, attention_mask, cu_seq_lens_q, cu_seq_lens_k, max_length_q, **options):
    """What flash attention does with rows that it is told the ends of; its kernel is for GPUs."""
    ends = cu_seq_lens_q.tolist()
    assert (attention_mask, cu_seq_lens_q.dtype, cu_seq_lens_k.tolist()) == (None, torch.int32, ends)
    assert max(end - begin for begin, end in pairwise(ends)) <= max_length_q
    rows = [
        sdpa_attention_forward(module, query[:, :, a:b], key[:, :, a:b], value[:, :, a:b], None, **options)[0]
        for a, b in pairwise(ends)
    ]
    return torch.cat(rows, dim=1), None


def _model(name, attention="ours"):
    model = made(name)
    if attention == "ours":
        use_grouped_attention(model)
    if attention == "flash":
        AttentionInterface.register("flash_stand_in", _flash)
        AttentionMaskInterface.register("flash_stand_in", flash_attention_mask)
    if attention in ("flash", "flex"):
        model.config._attn_implementation = {"flash": "flash_stand_in", "flex": "flex_attention"}[attention]
    return model


def _rows(lengths=(WIDTH, 9, 11, 1), shared=0):
    ids = torch.randint(3, 64, (len(lengths), WIDTH), generator=torch.Generator().manual_seed(1))
    ids[:, :shared] = ids[0, :shared].clone()
    lengths = torch.tensor(lengths)
    mask = torch.arange(WIDTH) < lengths[:, None]
    mask[:, : max(1, shared + 1)] = False
    mask[::2, 4:6] = False
    return SimpleNamespace(token_ids=ids, action_mask=mask, lengths=lengths)


@pytest.fixture(scope="module")
def model():
    return _model("gemma3_text")


def _scored(model, rows, takes):
    setattr(model, unpadded._KNOWN, takes)
    module = SimpleNamespace(trainer=SimpleNamespace(strategy=None))
    return PolicyModule._scored(module, model, rows, entropy_gradient=True)  # pyright: ignore


def _with_gradients(model, rows, takes):
    model.zero_grad()
    logprobs, entropies = _scored(model, rows, takes)
    (logprobs.sum() + 0.3 * entropies.sum()).backward()
    return logprobs, entropies, {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def _assert_alike(model, rows):
    found, entropies, ours = _with_gradients(model, rows, True)
    wanted, expected, theirs = _with_gradients(model, rows, False)
    assert wanted.abs().max() > 1
    assert torch.allclose(found, wanted, atol=1e-5)
    assert torch.allclose(entropies, expected, atol=1e-5)
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4, rtol=1e-4) for name in ours)


def _tokens_of_a_pass(model, rows, takes):
    seen, layers = [], model.base_model.layers
    handle = layers[0].mlp.register_forward_hook(lambda layer, args, out: seen.append(args[0].shape[:-1].numel()))
    with torch.no_grad():
        _scored(model, rows, takes)
    handle.remove()
    return seen


@pytest.mark.parametrize("shared", [0, 8])
@pytest.mark.parametrize(
    "name",
    every_day(sorted(FAMILIES.keys() - RECURRENT - OWN_CODE), {"llama", "qwen3", "gemma2", "gemma3_text", "mixtral"}),
)
def test_log_probs_entropies_and_gradients_are_those_of_padded_rows(name, shared):
    _assert_alike(_model(name), _rows((WIDTH, 10, 12, 10) if shared else (WIDTH, 9, 11, 1), shared))


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, WIDTH), max_size=4), st.integers(0, 9))
def test_they_are_for_rows_of_any_lengths_and_beginnings(model, others, shared):
    _assert_alike(model, _rows((WIDTH, *(max(length, shared + 1) for length in others)), shared))


def test_only_tokens_of_rows_go_through_and_what_they_begin_with_once():
    model = _model("qwen3")
    assert _tokens_of_a_pass(model, _rows(), True) == [WIDTH + 9 + 11 + 1]
    assert _tokens_of_a_pass(model, _rows(), False) == [4 * WIDTH]
    assert _tokens_of_a_pass(model, _rows((WIDTH, 10, 12, 10), 8), True) == [8, 6 + 2 + 4 + 2]
    assert _tokens_of_a_pass(model, _rows((WIDTH,) * 3), True) == [3 * WIDTH], "nothing to leave out"


def test_they_are_where_activations_are_computed_again():
    model = _model("qwen3").train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    _assert_alike(model, _rows())


@pytest.mark.parametrize("name", ["qwen3", "mixtral"])
def test_flash_attention_is_told_where_rows_end(name):
    model, plain = _model(name, "flash"), _model(name)
    found, entropies, ours = _with_gradients(model, _rows(), True)
    wanted, expected, theirs = _with_gradients(plain, _rows(), False)
    assert torch.allclose(found, wanted, atol=1e-5)
    assert torch.allclose(entropies, expected, atol=1e-5)
    assert all(torch.allclose(ours[key], theirs[key], atol=1e-4, rtol=1e-4) for key in theirs)
    assert _tokens_of_a_pass(model, _rows(), True) == [WIDTH + 9 + 11 + 1]


@pytest.mark.slow  # inductor is loaded, though nothing is compiled
@pytest.mark.filterwarnings("ignore")  # that it is not compiled, and what torch and transformers say of themselves
@pytest.mark.parametrize("name", every_day(["qwen3", "gemma2", "gemma3_text", "mixtral", "llama"], {"gemma3_text"}))
def test_flex_attention_keeps_rows_apart(name):
    model, rows = _model(name, "flex"), _rows()
    with torch.compiler.set_stance("force_eager"), torch.no_grad():  # on a CPU it has no backward pass
        found, wanted = _scored(model, rows, True), _scored(_model(name), rows, False)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("name", every_day(FAMILIES, {"llama", "qwen3_5_text", "gpt_oss"}))
def test_what_a_model_does_on_a_case_says_whether_it_takes_them(name, monkeypatch):
    monkeypatch.setattr(unpadded, "_may", lambda model: True)
    assert _asked(_model(name)) == (name not in RECURRENT | OWN_CODE)


def test_a_model_that_does_not_hand_on_what_it_is_told_does_not(monkeypatch):
    monkeypatch.setattr(unpadded, "_may", lambda model: True)
    model = _model("qwen3")
    for layer in model.get_submodule("model.layers").children():
        layer.get_submodule("self_attn").register_forward_pre_hook(_forget, with_kwargs=True)
    assert not _asked(model)


def _forget(layer, args, kwargs):
    return args, {key: value for key, value in kwargs.items() if key != unpadded.ROWS}


def test_rows_stay_padded_on_a_cpu_and_with_attention_that_does_not_keep_them_apart(monkeypatch):
    assert not _asked(_model("qwen3"))
    assert not unpadded._may(_model("qwen3", "torch's"))
    assert unpadded._may(_model("qwen3", "flash"))
    assert unpadded._may(_model("qwen3", "flex"))
    monkeypatch.setattr(type(_model("qwen3")), "device", torch.device("meta"))
    assert unpadded._may(_model("qwen3"))
    assert not unpadded._may(_model("qwen3_5_text"))


def test_it_is_asked_once(monkeypatch):
    monkeypatch.setattr(unpadded, "_may", lambda model: True)
    model = _model("qwen3")
    assert _asked(model)
    assert unpadded.takes_unpadded(model, lambda *_: pytest.fail("again"))


def _asked(model):
    rows = SimpleNamespace(**{name: values.to(model.device) for name, values in vars(_rows((WIDTH, WIDTH))).items()})
    module = SimpleNamespace(trainer=SimpleNamespace(strategy=None))
    PolicyModule._scored(module, model, rows)  # pyright: ignore
    return getattr(model, unpadded._KNOWN)


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 5e-2)])
@pytest.mark.parametrize("shared", [0, 8])
def test_on_a_gpu_rows_go_without_padding_and_have_the_log_probs_of_padded_ones(shared, dtype, near):
    model, rows = _model("qwen3").to("cuda", dtype), _rows((WIDTH, 10, 12, 10), shared)
    rows = SimpleNamespace(**{name: values.cuda() for name, values in vars(rows).items()})
    assert _asked(model)
    (found, _, ours), (wanted, _, theirs) = (_with_gradients(model, rows, takes) for takes in (True, False))
    assert torch.allclose(found, wanted, atol=near, rtol=near)
    for name, gradient in theirs.items():
        assert float((ours[name] - gradient).norm()) <= 10 * near * float(gradient.norm()), name


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_joined_and_put_apart_again_is_the_same_with_0_as_padding(lengths):
    rows = Unpadded(torch.tensor(lengths), max(lengths))
    values = torch.arange(1, 1 + 2 * len(lengths) * max(lengths)).view(len(lengths), max(lengths), 2)
    joined = rows.joined(values)
    assert joined[0].tolist() == [value for row, n in zip(values.tolist(), lengths, strict=True) for value in row[:n]]
    assert rows.apart(joined).equal(values * rows.inside[..., None])
    padding = max(lengths) * len(lengths) - sum(lengths)
    assert rows.pays == (padding >= 0.02 * max(lengths) * len(lengths))
