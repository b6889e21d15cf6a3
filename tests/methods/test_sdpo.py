"""SDPO: which siblings are in a pair; its definition is in `tests/loss_inputs.py`, with those of all losses."""

from dataclasses import replace

import torch

from cod_lightning.methods.sdpo import SDPO
from tests.loss_inputs import LOSSES, gradient, inputs, rows_of


def test_siblings_without_an_advantage_are_in_no_pair_and_in_no_share():
    x = inputs(0, episodes=(1, 2, 3, 4))
    advantages = torch.tensor([1.0, -1.0, -2.0, 0.0], dtype=torch.float64)[:, None] * x.action_mask
    x = replace(x, siblings=torch.zeros(4, dtype=torch.long), advantages=advantages)
    three = rows_of(x, torch.tensor([0, 1, 2]))
    whole, without = gradient(SDPO(beta=0.7), x), gradient(SDPO(beta=0.7), three)
    torch.testing.assert_close(whole[0], without[0])
    torch.testing.assert_close(whole[0], LOSSES["sdpo"][1](x))
    assert (whole[1][3] == 0).all()


def test_under_bf16_true_whose_numbers_have_three_digits_pairs_weigh_what_they_do_elsewhere():
    x = inputs(0, episodes=tuple(range(9)))
    advantages = torch.tensor([1.0] * 2 + [-1.0] * 7)[:, None] * x.action_mask
    x = replace(x, siblings=torch.zeros(9, dtype=torch.long), advantages=advantages)
    plain = SDPO()(x).loss
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # as Lightning does for a step
    try:
        assert torch.equal(SDPO()(x).loss, plain)
    finally:
        torch.set_default_dtype(before)
