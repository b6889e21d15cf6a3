"""Weights in the form of checkpoints: experts apart, other tensors as they are."""

import torch

from cod_lightning.engines.vllm_folder import CheckpointForm
from tests.cases import each
from tests.families import made


@each(
    ("family", "cut"), [("llama", False), ("mixtral", True), ("qwen3_moe", True), ("gpt_oss", False), ("gemma2", False)]
)
def test_experts_are_cut_apart_and_no_number_is_lost(family, cut):
    model = made(family)
    named = model.state_dict()
    written = dict(CheckpointForm(model)(named.items()))
    assert all(torch.equal(tensor, named[name]) for name, tensor in written.items() if name in named)
    assert (len(written) > len(named)) == cut
    assert sum(tensor.numel() for tensor in written.values()) == sum(
        tensor.numel() for name, tensor in named.items() if (family, name) != ("gemma2", "lm_head.weight")
    )
