"""Rows that go through a model as a tree: log-probs, entropies and gradients of the padded ones."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cod_lightning.forward import row_tree
from cod_lightning.forward.attention import ROWS, use_grouped_attention
from cod_lightning.forward.row_tree import RowTree, split_by_nodes, takes_tree
from cod_lightning.modules.policy import PolicyModule
from tests.cases import each
from tests.families import FAMILIES, every_day, made

RECURRENT = {"qwen3_next", "qwen3_5_text"}
OWN_CODE = {"gpt_oss"}
WIDTH = 14


def _model(name):
    model = made(name)
    use_grouped_attention(model)
    return model


def _rows(lengths=(WIDTH, 9, 11, 1), shared=0):
    ids = torch.randint(3, 64, (len(lengths), WIDTH), generator=torch.Generator().manual_seed(1))
    ids[:, :shared] = ids[0, :shared].clone()
    lengths = torch.tensor(lengths)
    mask = torch.arange(WIDTH) < lengths[:, None]
    mask[:, 0] = False
    mask[::2, 4:6] = False
    return SimpleNamespace(token_ids=ids, action_mask=mask, lengths=lengths)


@pytest.fixture(scope="module")
def model():
    return _model("gemma3_text")


def _scored(model, rows, takes):
    setattr(model, row_tree._KNOWN, takes)
    return _by_module(model, rows, entropy_gradient=True)


def _by_module(model, rows, **options):
    module = SimpleNamespace(token_budget=1)  # no rectangle fits
    module._takes_tree = lambda model: PolicyModule._takes_tree(module, model)  # pyright: ignore
    return PolicyModule._scored(module, model, rows, **options)  # pyright: ignore


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


@each("shared", [0, 8])
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


def test_only_tokens_of_rows_go_through_and_what_rows_begin_with_once():
    model = _model("qwen3")
    assert _tokens_of_a_pass(model, _rows(), True) == [WIDTH + 9 + 11 + 1]
    assert _tokens_of_a_pass(model, _rows(), False) == [4 * WIDTH]
    rows = _rows((WIDTH, 10, 12, 10), 8)
    rows.token_ids[3] = rows.token_ids[1]  # whole rows, sampled tokens and all
    rows.token_ids[2, :9] = rows.token_ids[1, :9]
    assert _tokens_of_a_pass(model, rows, True) == [8 + 6 + 2 + 3]


def test_they_are_where_activations_are_computed_again():
    model = _model("qwen3").train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    _assert_alike(model, _rows())


@pytest.mark.parametrize("name", every_day(FAMILIES, {"llama", "qwen3_5_text", "gpt_oss"}))
def test_what_a_model_does_on_a_case_says_whether_it_takes_them(name, monkeypatch):
    monkeypatch.setattr(row_tree, "_may", lambda model: True)
    assert _asked(_model(name)) == (name not in RECURRENT | OWN_CODE)


def _forget(layer, args, kwargs):
    return args, {key: value for key, value in kwargs.items() if key != ROWS}


def test_other_attention_and_recurrent_layers_do_not():
    assert not row_tree._may(made("qwen3"))
    assert row_tree._may(_model("qwen3"))
    assert not row_tree._may(_model("qwen3_5_text"))


def test_a_model_is_asked_once_and_one_that_does_not_hand_on_what_it_gets_takes_none():
    model = _model("qwen3")
    assert _asked(model)
    assert takes_tree(model, lambda *_: pytest.fail("again"))
    model = _model("qwen3")
    for layer in model.get_submodule("model.layers").children():
        layer.get_submodule("self_attn").register_forward_pre_hook(_forget, with_kwargs=True)
    assert not _asked(model)


def _asked(model):
    rows = SimpleNamespace(**{name: values.to(model.device) for name, values in vars(_rows((WIDTH, WIDTH))).items()})
    _by_module(model, rows)
    return getattr(model, row_tree._KNOWN)


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


ROWS_OF_BITS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=7), min_size=1, max_size=7)


def _padded(rows):
    ids = torch.full((len(rows), max(map(len, rows))), 9)
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = torch.tensor(values)
    return ids, torch.tensor([len(row) for row in rows])


@given(ROWS_OF_BITS, st.data())
def test_a_node_is_a_token_with_all_that_comes_before_it(rows, data):
    (ids, lengths), bits = _padded(rows), data.draw(st.randoms(use_true_random=False))
    wanted = torch.tensor([[bits.random() < 0.5 for _ in row] for row in ids.tolist()])
    tree = RowTree(ids, lengths, wanted)
    nodes = {tuple(row[: n + 1]) for row in rows for n in range(len(row))}
    assert tree.token_ids.shape[1] == len(nodes)
    numbers = torch.arange(1, 1 + len(nodes))[None].float()
    at = tree.rows(numbers).long().tolist()
    named = {tuple(row[: n + 1]): at[r][n] for r, row in enumerate(rows) for n in range(len(row))}
    assert len(set(named.values())) == len(nodes)
    assert all(value == 0 for r, row in enumerate(rows) for value in at[r][len(row) :])
    for beginning, number in named.items():
        assert tree.token_ids[0, number - 1] == beginning[-1]
        assert len(beginning) == 1 or 1 + int(tree.parent[number - 1]) == named[beginning[:-1]]
    asked = {named[tuple(row[: n + 1])] for r, row in enumerate(rows) for n in range(1, len(row)) if wanted[r, n]}
    assert {1 + n for n in tree.wanted[0].nonzero().flatten().tolist()} == asked
    before = {1 + int(tree.parent[number - 1]) for number in asked}
    assert {1 + n for n in tree.predicting[0].nonzero().flatten().tolist()} == before


def test_a_tree_pays_by_the_share_of_places_that_are_nodes_and_earlier_in_wide_models():
    ids = torch.tensor([[0, 1, 2, 3], [0, 1, 2, 4]])
    assert RowTree(ids, torch.tensor([4, 4]), ids > 0).share == 5 / 8
    model = _model("qwen3")
    assert row_tree.most_that_pays(model) == 0.5
    model.config.hidden_size = 576
    assert row_tree.most_that_pays(model) == 0.9


def _num_nodes(rows):
    return len({tuple(row[: n + 1]) for row in rows for n in range(len(row))})


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=6), min_size=1, max_size=12),
    st.integers(4, 20),
    st.data(),
)
def test_micro_batches_hold_what_shares_beginnings_within_the_budget(rows, budget, data):
    keys = data.draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows)))
    ids, lengths = _padded(rows)
    parts = split_by_nodes(ids, lengths, torch.tensor(keys), budget, 0.5)
    total = sum(map(len, rows))
    assert (parts is None) == (_num_nodes(rows) > 0.5 * total)
    if parts is None:
        return
    parts = [part.tolist() for part in parts]
    assert sorted(row for part in parts for row in part) == list(range(len(rows)))
    for part in parts:
        others = set(range(len(rows))) - set(part)
        assert not {keys[row] for row in part} & {keys[row] for row in others}
        if len({keys[row] for row in part}) > 1:
            assert _num_nodes([rows[row] for row in part]) <= budget
            assert sum(len(rows[row]) for row in part) <= row_tree.MOST_ALIKE * budget


def test_rows_that_begin_alike_come_side_by_side():
    siblings = [[pack, *range(50), sibling] for sibling in range(4) for pack in (100, 200)]
    ids, lengths = _padded(siblings)
    parts = split_by_nodes(ids, lengths, torch.arange(8), 60, 0.5)
    assert parts is not None
    assert [sorted(part.tolist()) for part in parts] == [[0, 2, 4, 6], [1, 3, 5, 7]]


def test_rows_of_one_key_keep_their_order_in_which_an_episode_has_its_turns():
    ids, lengths = _padded([[5, 5, 5, 9], [5, 5, 5, 4], [5, 5, 5, 7]])
    (part,) = split_by_nodes(ids, lengths, torch.tensor([0, 0, 0]), 100, 0.9) or ()
    assert part.tolist() == [0, 1, 2]
