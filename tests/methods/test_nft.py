"""NFT: what is a success and what a failure; its definition is in `tests/loss_inputs.py`, with those of all losses."""

import math
from dataclasses import replace

import pytest
import torch

from cod_lightning.methods.nft import NFT
from cod_lightning.methods.sdpo import SDPO
from tests.cases import each
from tests.loss_inputs import gradient, inputs

NOISE = 3e-8
"""What is left of an advantage of 0 in float32."""


@each("loss", [NFT(), SDPO()])
def test_rounding_noise_in_place_of_an_advantage_is_no_success_and_no_failure(loss):
    """Such rows go through the model where a loss term wants them, or where a pack is kept whole."""
    x = inputs(0, width=400, episodes=(7, 7, 2, 4, 5))
    sign = torch.tensor([1.0, 1.0, -1.0, 1.0, -1.0])[:, None]
    x = replace(x, siblings=torch.zeros(5, dtype=torch.long), advantages=NOISE * sign * x.action_mask)
    value, found = gradient(loss, x)
    assert value == 0
    assert (found == 0).all()
    signal = replace(x, advantages=1e4 * x.advantages)
    assert gradient(loss, signal)[1].abs().sum() > 0, "and what is no noise has a gradient"


@each("seed", range(5))
def test_a_bound_at_a_ratio_of_1_does_not_count_rounding_as_clipped(seed):
    def num_clipped(spread):
        x = inputs(seed, episodes=tuple(range(8)), spread=spread)
        return NFT()(replace(x, siblings=torch.zeros(8).long())).num_clipped

    assert num_clipped(1e-6) == 0 < num_clipped(0.5)


def test_a_bounded_failure_has_the_gradient_of_its_bound_however_far_the_policy_has_moved():
    """In float32 a small bound is nothing beside N = -1e5."""
    x = inputs(0, episodes=tuple(range(8)), dtype=torch.float32)
    signs = torch.tensor([-1.0] + [1.0] * 7)[:, None]
    moved = (x.behaviour_logprobs + 9.9).detach().requires_grad_()
    x = replace(x, siblings=torch.zeros(8).long(), advantages=signs * x.action_mask, policy_logprobs=moved)
    value, found = gradient(NFT(least_negative=1e-3), x)
    assert value.isfinite()
    share = 7 / 8
    expected = share * math.exp(9.9) / 1e-3 / x.num_action_tokens
    assert found[0][x.action_mask[0]].tolist() == pytest.approx([expected] * int(x.action_mask[0].sum()), rel=1e-3)
