"""Adaptive RED weights."""

import math

import pytest
import torch

from cod_lightning.credit.credited import AdaptiveRED
from cod_lightning.errors import ConfigError
from tests.cases import each


def draw(seed):
    rng = torch.Generator().manual_seed(seed)
    advantages = torch.randn(4, 8, 7, generator=rng) * (0.1 + 3 * torch.rand(1, generator=rng))
    advantages = advantages - advantages.mean(dim=1, keepdim=True)
    counts = torch.randint(1, 60, advantages.shape, generator=rng)
    valid = torch.rand(advantages.shape, generator=rng) > 0.1
    return torch.where(valid, advantages, 0.0), counts, valid


@each("seed", range(200))
def test_a_clearly_negative_sum_ends_closer_to_zero_or_at_a_bound_and_any_other_is_left_alone(seed):
    advantages, counts, valid = draw(seed)
    before = float((advantages.double() * counts).sum())
    tilted, temperature = AdaptiveRED()(advantages, counts, valid)
    if before >= 0:
        assert temperature == 0
        assert torch.equal(tilted, advantages)
        return
    after = float((tilted.double() * counts).sum())
    at_bound = temperature < 0.85 or temperature > 99.9
    assert abs(after) < abs(before) or at_bound
    assert 0.8 <= temperature <= 100


def test_the_tilt_is_the_formula():
    advantages = torch.tensor([[[-0.5], [-0.5], [0.4]]])
    counts = torch.tensor([[[3], [3], [3]]])
    tilted, temperature = AdaptiveRED()(advantages, counts, torch.ones_like(counts, dtype=torch.bool))
    torch.testing.assert_close(tilted, advantages * torch.exp(advantages / temperature))


def test_rounding_noise_of_equal_lengths_does_not_fire():
    values = torch.tensor([0.1, 0.7, 0.3, 0.9, 0.2]).repeat(40).view(8, 25, 1)
    centred = values - values.mean(dim=1, keepdim=True) - 1e-9
    _, temperature = AdaptiveRED()(
        centred, torch.full_like(centred, 7, dtype=torch.long), torch.ones_like(centred, dtype=torch.bool)
    )
    assert temperature == 0


def test_what_is_invalid_weighs_nothing():
    advantages = torch.tensor([[[-5.0], [0.5], [0.1]]])
    counts = torch.ones(1, 3, 1, dtype=torch.long)
    _, temperature = AdaptiveRED()(advantages, counts, torch.tensor([[[False], [True], [True]]]))
    assert temperature == 0


def test_autocast_and_junk_at_invalid_places_change_nothing():
    advantages, counts, valid = next(d for d in map(draw, range(50)) if (d[0] * d[1]).sum() < 0)
    exact, temperature = AdaptiveRED()(advantages, counts, valid)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, same = AdaptiveRED()(torch.where(valid, advantages, float("nan")), counts, valid)
    assert temperature > 0
    assert same == temperature
    assert found.dtype == torch.float32
    assert torch.equal(found, exact)


def test_the_bisection_ends_where_the_tilted_sum_is_zero():
    """e^(1/T) = 3 e^(-1/T), so T = 2 / ln 3."""
    _, temperature = AdaptiveRED()(
        torch.tensor([[[1.0], [-1.0]]]), torch.tensor([[[1], [3]]]), torch.ones(1, 2, 1).bool()
    )
    assert temperature == pytest.approx(2 / math.log(3), abs=0.05)


def test_advantages_that_are_no_numbers_once_tilted_end_the_run_and_leave_out_no_row():
    large = torch.tensor([[[1e4], [-1e4]]])
    with pytest.raises(ConfigError, match=r"model\.reweight is AdaptiveRED; .*not of 1e\+04"):
        AdaptiveRED()(large, torch.tensor([[[1], [2]]]), large.bool())
