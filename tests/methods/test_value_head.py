"""Advantages from values, as the definition has them."""

import pytest
import torch

from cod_lightning.methods.value_head import ValueHead
from tests.cases import each


@each("gae_lambda", [0.0, 0.7, 1.0])
def test_advantages_are_those_of_the_loop_over_action_tokens(gae_lambda):
    torch.manual_seed(0)
    values, returns, mask = torch.randn(6, 9), torch.randn(6), torch.rand(6, 9) < 0.5
    found = ValueHead(gae_lambda=gae_lambda).advantages(values, returns, mask)
    for row in range(6):
        tokens = mask[row].nonzero().squeeze(1).tolist()
        after = 0.0
        for number, t in reversed(list(enumerate(tokens))):
            ends = number == len(tokens) - 1
            following = returns[row] if ends else values[row, tokens[number + 1]]
            after = float(following - values[row, t]) + gae_lambda * after
            assert float(found[row, t]) == pytest.approx(after, abs=1e-5)
