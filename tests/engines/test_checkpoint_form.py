"""Weights in the form of checkpoints while they go by, layer by layer, are those of the whole model at once."""

import pytest
import torch

from cod_lightning.adapters import plain_form
from cod_lightning.engines.checkpoint_form import CheckpointForm
from tests.families import made


@pytest.mark.parametrize(
    ("family", "cut"), [("llama", False), ("mixtral", True), ("qwen3_moe", True), ("gpt_oss", False), ("gemma2", False)]
)
def test_parts_are_the_whole_and_can_be_foretold_without_numbers(family, cut):
    model = made(family)
    named = model.state_dict()
    form = CheckpointForm(model)
    whole = dict(form(named.items()))
    parts = list(form.parts(iter(named.items())))
    inside = [one for part in parts for one in part]
    assert {name for name, _ in inside} == whole.keys()
    assert len(inside) == len(whole)
    assert all(torch.equal(tensor, whole[name]) for name, tensor in inside)
    assert (whole.keys() != named.keys() and len(inside) > len(named)) == cut
    foretold = [(name, t.dtype, t.shape) for part in form.parts(plain_form(model)) for name, t in part]
    assert foretold == [(name, t.dtype, t.shape) for name, t in inside]
    layers = [{name.split(".")[2] for name, _ in part if ".layers." in name} for part in parts]
    assert all(len(layer) <= 1 for layer in layers)
