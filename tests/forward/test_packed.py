"""Rows packed into one pass: each one's hidden states are those of the row by itself, whatever its neighbours are."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from cod_lightning.engines.slots import SlotCache
from cod_lightning.errors import ConfigError
from cod_lightning.forward import attention
from cod_lightning.forward.last_layer import read_only_at
from cod_lightning.forward.packed import Block, Rows, use_packed_rows
from tests.forward.small import SMALL

MAKES = {"qwen3": (Qwen3ForCausalLM, Qwen3Config), "llama": (LlamaForCausalLM, LlamaConfig)}


def _model(name="qwen3", **options):
    torch.manual_seed(0)
    made, config = MAKES[name]
    return made._from_config(config(**SMALL), **options).eval()


def _rows(slots, starts, chunks) -> Rows:
    return Rows(
        slots=np.array(slots),
        starts=np.array(starts),
        lengths=np.array([len(chunk) for chunk in chunks]),
        ids=np.array([i for chunk in chunks for i in chunk]),
    )


@torch.inference_mode()
def _last_hidden(model, current, cache, rows: Rows, only_last=False):
    """Of each row's last new id."""
    columns, last = torch.from_numpy(rows.columns), torch.from_numpy(rows.ends - 1)
    cache.reserve(1 + int(rows.slots.max()), rows.num_used)
    cache.aim(torch.from_numpy(np.repeat(rows.slots, rows.lengths)), columns)
    current.blocks = [Block.of(rows, part, columns.device) for part in rows.similar()]
    read = torch.zeros(1, len(rows.ids), dtype=torch.bool).index_fill_(1, last, True)
    with read_only_at(model, read) if only_last else nullcontext():
        out = model.base_model(
            input_ids=torch.from_numpy(rows.ids)[None],
            position_ids=columns[None],
            attention_mask=torch.ones(1, 1, 1, 1, dtype=torch.bool),
            past_key_values=cache,
        ).last_hidden_state
    current.blocks = []
    return out[0, last]


@torch.inference_mode()
def _alone(model, ids):
    return model.base_model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]


DIALOGUES = st.lists(
    st.lists(st.lists(st.integers(0, 19), min_size=1, max_size=24), min_size=1, max_size=3), min_size=1, max_size=9
)


@settings(deadline=None, max_examples=40)
@given(dialogues=DIALOGUES, seed=st.integers(0, 99), only_last=st.booleans(), name=st.sampled_from(list(MAKES)))
def test_every_row_ends_as_it_would_by_itself(dialogues, seed, only_last, name):
    plain, model, cache = _model(name), _model(name), SlotCache()
    current = use_packed_rows(model)
    slots = np.random.default_rng(seed).permutation(12)[: len(dialogues)].tolist()
    for step in range(3):  # dialogues have up to three turns; those that are over sit aside
        live = sorted(
            (d for d, turns in enumerate(dialogues) if len(turns) > step), key=lambda d: len(dialogues[d][step])
        )
        if not live:
            break
        before = [[i for turn in dialogues[d][:step] for i in turn] for d in live]
        rows = _rows([slots[d] for d in live], [len(ids) for ids in before], [dialogues[d][step] for d in live])
        found = _last_hidden(model, current, cache, rows, only_last)
        for d, had, hidden in zip(live, before, found, strict=True):
            assert torch.allclose(hidden, _alone(plain, had + dialogues[d][step]), atol=1e-5)


def test_long_rows_are_left_to_torch(monkeypatch):
    plain, model = _model(), _model()
    monkeypatch.setattr(attention, "_ROW", 0)
    monkeypatch.setattr(attention, "_written_out", None)  # would fail if it were called
    chunks = [[3], [4, 5, 6], [7, 8, 9, 1, 2]]
    found = _last_hidden(model, use_packed_rows(model), SlotCache(), _rows([2, 0, 1], [0, 0, 0], chunks))
    assert all(torch.allclose(row, _alone(plain, ids), atol=1e-5) for row, ids in zip(found, chunks, strict=True))


def test_outside_of_such_passes_the_model_is_what_it_was():
    plain, model, ids = _model(), _model(), torch.randint(20, (2, 7))
    use_packed_rows(model)
    assert torch.allclose(model(input_ids=ids).logits, plain(input_ids=ids).logits, atol=1e-5)


def test_attention_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match=r"model\.policy is a model with attention 'eager'"):
        use_packed_rows(_model(attn_implementation="eager"))


def test_rows_know_where_their_ids_go():
    rows = _rows([5, 1, 2], [7, 0, 3], [[9], [1, 2], [3, 4, 5]])
    assert rows.columns.tolist() == [7, 0, 1, 3, 4, 5]
    assert rows.ends.tolist() == [1, 3, 6]
    assert rows.num_used == 8
    part = rows[1:]
    assert (part.ids.tolist(), part.columns.tolist(), part.slots.tolist()) == ([1, 2, 3, 4, 5], [0, 1, 3, 4, 5], [1, 2])


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([1, 1, 1], [3]),
        ([1, 1, 2, 3], [2, 2]),  # a token by itself is never padded
        ([2, 5, 12, 13, 34, 35], [3, 2, 1]),
    ],
)
def test_similar_rows_share_a_rectangle(lengths, expected):
    rows = _rows(range(len(lengths)), [0] * len(lengths), [[0] * length for length in lengths])
    assert [part.stop - part.start for part in rows.similar()] == expected


@pytest.mark.parametrize("slots", [[4, 5, 6], [6, 0, 3]])
def test_rows_side_by_side_are_read_where_they_are(slots):
    store = torch.randn(8, 2, 9, 3)
    block = Block.of(_rows(slots, [2, 3, 4], [[1], [1], [1]]), slice(0, 3), store.device)
    seen = block.read(store)
    assert torch.equal(seen, store[slots, :, :5])
    assert (seen.untyped_storage().data_ptr() == store.untyped_storage().data_ptr()) == (slots == [4, 5, 6])
    assert block.visible[:, 0, 0].sum(dim=1).tolist() == [3, 4, 5]
