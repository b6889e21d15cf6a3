"""NFT: what is a success and what a failure; its definition is in `tests/loss_inputs.py`, with those of all losses."""

from dataclasses import replace

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
