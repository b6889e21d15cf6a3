"""Rows packed into one pass: each one's hidden states are those of the row by itself, whatever its neighbours are."""

from unittest.mock import patch

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from cod_lightning.forward import attention, packed
from cod_lightning.forward.packed import Block, PackedForward, packs, width_class
from cod_lightning.forward.slots import SlotCache
from tests.cases import each
from tests.forward.rows import rows_of
from tests.forward.small import SMALL

MAKES = {"qwen3": (Qwen3ForCausalLM, Qwen3Config), "llama": (LlamaForCausalLM, LlamaConfig)}


def _model(name="qwen3", **options):
    torch.manual_seed(0)
    made, config = MAKES[name]
    return made._from_config(config(**SMALL), **options).eval()


@torch.inference_mode()
def _alone(model, ids):
    return model.base_model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]


DIALOGUES = st.lists(
    st.lists(st.lists(st.integers(0, 19), min_size=1, max_size=24), min_size=1, max_size=3), min_size=1, max_size=9
)


@given(
    dialogues=DIALOGUES,
    seed=st.integers(0, 99),
    only_last=st.booleans(),
    split=st.booleans(),
    few=st.booleans(),
    name=st.sampled_from(list(MAKES)),
)
def test_every_row_ends_as_it_would_by_itself(dialogues, seed, only_last, split, few, name):
    plain, forward, cache = _model(name), PackedForward(_model(name)), SlotCache()
    forward.fused = few  # as a GPU has them
    slots = np.random.default_rng(seed).permutation(12)[: len(dialogues)].tolist()
    for step in range(3):  # dialogues have up to three turns; those that are over sit aside
        live = sorted(
            (d for d, turns in enumerate(dialogues) if len(turns) > step), key=lambda d: len(dialogues[d][step])
        )
        if not live:
            break
        before = [[i for turn in dialogues[d][:step] for i in turn] for d in live]
        rows = rows_of([slots[d] for d in live], [len(ids) for ids in before], [dialogues[d][step] for d in live])
        with (
            patch.object(packed, "_MANY_UNREAD", 0 if only_last else 10**9),
            patch.object(packed, "_WORTH_SPLITTING", 1 if split else 10**9),
            torch.inference_mode(),
        ):
            found = forward(rows, cache)
        for d, had, hidden in zip(live, before, found, strict=True):
            assert torch.allclose(hidden, _alone(plain, had + dialogues[d][step]), atol=1e-5)


def test_long_rows_are_left_to_torch(monkeypatch):
    plain, forward = _model(), PackedForward(_model())
    monkeypatch.setattr(attention, "_ROW", 0)
    monkeypatch.setattr(attention, "_written_out", None)  # would fail if it were called
    chunks = [[3], [4, 5, 6], [7, 8, 9, 1, 2]]
    with torch.inference_mode():
        found = forward(rows_of([2, 0, 1], [0, 0, 0], chunks), SlotCache())
    assert all(torch.allclose(row, _alone(plain, ids), atol=1e-5) for row, ids in zip(found, chunks, strict=True))


def test_outside_of_such_passes_the_model_is_what_it_was():
    plain, model, ids = _model(), _model(), torch.randint(20, (2, 7))
    PackedForward(model)
    assert torch.allclose(model(input_ids=ids).logits, plain(input_ids=ids).logits, atol=1e-5)


def test_a_model_with_attention_of_its_own_is_not_packed():
    assert packs(_model())
    assert not packs(_model(attn_implementation="eager"))


@each("slots", [[4, 5, 6], [6, 0, 3]])
def test_rows_side_by_side_are_read_where_they_are(slots):
    store = torch.randn(8, 2, 9, 3)
    block = Block.of(rows_of(slots, [2, 3, 4], [[1], [1], [1]]), slice(0, 3), store.device, fused=False)
    seen = block.read(store)
    assert torch.equal(seen, store[slots, :, :5])
    assert (seen.untyped_storage().data_ptr() == store.untyped_storage().data_ptr()) == (slots == [4, 5, 6])
    assert block.visible[:, 0, 0].sum(dim=1).tolist() == [3, 4, 5]


def test_rows_know_where_their_ids_go():
    rows = rows_of([5, 1, 2], [7, 0, 3], [[9], [1, 2], [3, 4, 5]])
    assert rows.columns.tolist() == [7, 0, 1, 3, 4, 5]
    assert rows.ends.tolist() == [1, 3, 6]
    assert rows.num_used == 8
    part = rows[1:]
    assert (part.ids.tolist(), part.columns.tolist(), part.slots.tolist()) == ([1, 2, 3, 4, 5], [0, 1, 3, 4, 5], [1, 2])


@each(
    ("lengths", "expected"),
    [
        ([1, 1, 1], [3]),
        ([1, 1, 2, 3], [2, 2]),  # a token by itself is never padded
        ([2, 5, 16, 17, 42, 43], [3, 2, 1]),
    ],
)
def test_similar_rows_share_a_rectangle(lengths, expected):
    rows = rows_of(range(len(lengths)), [0] * len(lengths), [[0] * length for length in lengths])
    assert [part.stop - part.start for part in rows.similar()] == expected


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=50))
def test_rows_of_one_width_class_are_alike(lengths):
    for length in lengths:
        alike = [other for other in lengths if width_class(other) == width_class(length)]
        assert max(alike) == 1 or max(alike) <= 2 * min(alike) + 12


@each(
    ("used", "width", "expected"),
    [
        ([10] * 100 + [50] * 10, 1, [100, 10]),  # leaves out 100 x 40 columns
        ([10] * 40 + [50] * 10, 1, [50]),  # 40 x 40 are not worth a block of their own,
        ([10] * 40 + [50] * 10, 3, [40, 10]),  # but they are where three queries see each
        ([10] * 100, 1, [100]),
        ([9], 1, [1]),
        ([50] * 10 + [10] * 100, 1, [10, 100]),
    ],
)
def test_rows_that_use_few_columns_are_a_block_of_their_own_where_it_pays(used, width, expected):
    rows = rows_of(range(len(used)), [num - width for num in used], [[0] * width for _ in used])
    assert [part.stop - part.start for part in rows.blocks()] == expected


@each(
    ("lengths", "columns", "expected"),
    [
        ([1, 2, 16, 17, 42, 43], 900, [6]),
        (
            [1] * 100 + [400] * 30 + [800] * 9,
            900,
            [100, 30, 9],
        ),  # 130 x 400 x 900 scores are too many, and 39 x 800 x 900
        ([1] * 9 + [400] * 3, 900, [12]),
    ],
)
def test_few_blocks_are_of_several_classes_where_that_is_not_too_much(lengths, columns, expected):
    rows = rows_of(range(len(lengths)), [columns - length for length in lengths], [[0] * length for length in lengths])
    assert [part.stop - part.start for part in rows.blocks(few=True)] == expected
