"""Which tokens are masked, and what the others weigh."""

import math

import pytest

from cod_lightning.methods.icepop import TokenMask
from tests.loss_inputs import inputs


def test_a_token_beyond_the_bounds_has_no_gradient_and_another_its_ratio():
    x = inputs(5)
    weights, ratios = TokenMask(min_ratio=0.8, max_ratio=1.2)(x)
    masked = 0
    for row, token in x.action_mask.nonzero().tolist():
        ratio = math.exp(float(x.policy_logprobs[row, token].detach()) - float(x.behaviour_logprobs[row, token]))
        assert float(ratios[row, token].detach()) == pytest.approx(ratio)
        assert float(weights[row, token].detach()) == pytest.approx(ratio if 0.8 <= ratio <= 1.2 else 0.0)
        masked += not 0.8 <= ratio <= 1.2
    assert 0 < masked < int(x.action_mask.sum())
    assert not weights[~x.action_mask].any()
