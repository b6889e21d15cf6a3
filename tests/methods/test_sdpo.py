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
