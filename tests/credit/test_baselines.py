"""Baselines and scales over siblings, some of which may be missing; the loops of their definitions are in test_credited.py."""

from dataclasses import replace

import torch

from cod_lightning.credit.baselines import Accepted, AsymRE, GroupMean, LeaveOneOut, deviation, divided
from cod_lightning.credit.returns import EpisodeCredit
from cod_lightning.credit.table import PerEpisode
from tests.cases import each
from tests.credit_tables import random_table, returns_of

BASELINES = [GroupMean(), LeaveOneOut(), AsymRE(shift=-0.2)]


def scale(advantages, returns, mode):
    return replace(advantages, values=divided(advantages.values, deviation(advantages, returns, mode)))


every_return = each("returns", [returns_of(EpisodeCredit(), random_table(seed, missing=0.25)) for seed in range(8)])


@every_return
@each("at_least", [None, 0.4])
def test_what_is_accepted_has_an_advantage_of_one_and_the_rest_is_left_out(returns, at_least):
    found = Accepted(at_least=at_least)(returns)
    for g in range(3):
        for e in range(7):
            alive = [k for k in range(5) if returns.valid[g, k, e]]
            mean = sum(returns.values[g, k, e].item() for k in alive) / max(1, len(alive))
            for k in range(5):
                bar = mean + 1e-6 if at_least is None else at_least
                accepted = k in alive and returns.values[g, k, e].item() >= bar
                assert bool(found.valid[g, k, e]) == accepted
                assert found.values[g, k, e].item() == float(accepted)
    assert found.valid.any()


@every_return
def test_batch_scaling_gives_unit_deviation_over_all_that_are_valid(returns):
    advantages = GroupMean()(returns)
    deviation = scale(advantages, returns, "batch").values[advantages.valid].std(correction=0)
    assert abs(deviation.item() - 1.0) < 1e-4


@each("mode", ["none", "group", "batch"])
def test_siblings_that_all_did_the_same_get_nothing_and_no_nan(mode):
    equal = PerEpisode(torch.full((2, 4, 3), 0.7), torch.ones(2, 4, 3, dtype=torch.bool))
    scaled = scale(GroupMean()(equal), equal, mode)
    assert scaled.values.abs().max() < 1e-6


@every_return
@each("mode", ["none", "group", "batch"])
@each("baseline", BASELINES)
def test_autocast_does_not_round_advantages(returns, baseline, mode):
    exact = scale(baseline(returns), returns, mode)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = scale(baseline(returns), returns, mode)
    assert found.values.dtype == torch.float32
    assert torch.equal(found.values, exact.values)


@every_return
@each("mode", ["none", "group", "batch"])
@each("baseline", BASELINES)
def test_a_return_that_is_not_valid_does_not_matter_whatever_it_is(returns, baseline, mode):
    dirty = PerEpisode(torch.where(returns.valid, returns.values, float("nan")), returns.valid)
    expected, found = (scale(baseline(r), r, mode) for r in (returns, dirty))
    assert torch.equal(found.values, expected.values)
    assert torch.equal(found.valid, expected.valid)


@every_return
@each("mode", ["group", "batch"])
@each("baseline", BASELINES[:2])
def test_scaled_advantages_do_not_depend_on_the_unit_of_the_rewards(returns, baseline, mode):
    tiny = PerEpisode(returns.values * 1e-2, returns.valid)
    expected, found = (scale(baseline(r), r, mode) for r in (returns, tiny))
    assert expected.values.abs().max() > 0.5
    torch.testing.assert_close(found.values, expected.values, atol=1e-4, rtol=1e-3)


@each("mode", ["none", "group", "batch"])
@each("baseline", BASELINES)
@each("survivors", [0, 1])
def test_with_fewer_than_two_survivors_nothing_is_compared_and_nothing_is_nan(baseline, mode, survivors):
    valid = torch.zeros(2, 4, 5, dtype=torch.bool)
    valid[:, :survivors] = True
    alone = PerEpisode(torch.rand(2, 4, 5, generator=torch.Generator().manual_seed(1)), valid)
    found = baseline(alone)
    assert not found.valid.any()
    assert (scale(found, alone, mode).values == 0).all()
