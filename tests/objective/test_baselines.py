"""Baselines and scales over siblings, some of which may be missing."""

import pytest
import torch

from cod_lightning.objective.baselines import GroupMean, LeaveOneOut, scale
from cod_lightning.objective.returns import EpisodeCredit, Returns
from tests.credit_tables import random_table


@pytest.fixture(params=range(8))
def returns(request):
    return EpisodeCredit()(random_table(request.param, missing=0.25))


def test_advantages_equal_the_definition_written_as_a_loop(returns):
    mean, others = GroupMean()(returns), LeaveOneOut()(returns)
    for g in range(3):
        for e in range(7):
            alive = [k for k in range(5) if returns.valid[g, k, e]]
            for k in range(5):
                if k not in alive or len(alive) < 2:
                    assert not mean.valid[g, k, e]
                    assert mean.values[g, k, e] == others.values[g, k, e] == 0
                    continue
                own = returns.values[g, k, e].item()
                everybody = [returns.values[g, i, e].item() for i in alive]
                rest = [returns.values[g, i, e].item() for i in alive if i != k]
                assert mean.values[g, k, e].item() == pytest.approx(own - sum(everybody) / len(everybody), abs=1e-6)
                assert others.values[g, k, e].item() == pytest.approx(own - sum(rest) / len(rest), abs=1e-6)


def test_siblings_centre_to_zero(returns):
    assert GroupMean()(returns).values.sum(dim=1).abs().max() < 1e-5


def test_leave_one_out_is_the_group_mean_stretched_by_the_actual_count(returns):
    count = returns.valid.sum(dim=1, keepdim=True)
    stretched = GroupMean()(returns).values * count / (count - 1).clamp_min(1)
    torch.testing.assert_close(LeaveOneOut()(returns).values, stretched)


def test_permuting_siblings_permutes_advantages(returns):
    order = torch.tensor([3, 0, 4, 2, 1])
    moved = Returns(returns.values[:, order], returns.valid[:, order])
    torch.testing.assert_close(GroupMean()(moved).values, GroupMean()(returns).values[:, order])


def test_group_scaling_gives_unit_deviation_over_survivors(returns):
    scaled = scale(GroupMean()(returns), returns, "group")
    for g in range(3):
        for e in range(7):
            alive = scaled.values[g, returns.valid[g, :, e], e]
            if len(alive) >= 2 and alive.abs().max() > 0:
                assert alive.std(correction=0).item() == pytest.approx(1.0, abs=1e-4)


def test_batch_scaling_gives_unit_deviation_over_all_that_are_valid(returns):
    advantages = GroupMean()(returns)
    deviation = scale(advantages, returns, "batch").values[advantages.valid].std(correction=0)
    assert deviation.item() == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("mode", ["none", "group", "batch"])
def test_siblings_that_all_did_the_same_get_nothing_and_no_nan(mode):
    equal = Returns(torch.full((2, 4, 3), 0.7), torch.ones(2, 4, 3, dtype=torch.bool))
    scaled = scale(GroupMean()(equal), equal, mode)
    assert scaled.values.abs().max() < 1e-6


@pytest.mark.parametrize("mode", ["none", "group", "batch"])
@pytest.mark.parametrize("baseline", [GroupMean(), LeaveOneOut()], ids=str)
def test_autocast_does_not_round_advantages(returns, baseline, mode):
    exact = scale(baseline(returns), returns, mode)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = scale(baseline(returns), returns, mode)
    assert found.values.dtype == torch.float32
    assert torch.equal(found.values, exact.values)


@pytest.mark.parametrize("mode", ["none", "group", "batch"])
@pytest.mark.parametrize("baseline", [GroupMean(), LeaveOneOut()], ids=str)
def test_a_return_that_is_not_valid_does_not_matter_whatever_it_is(returns, baseline, mode):
    dirty = Returns(torch.where(returns.valid, returns.values, float("nan")), returns.valid)
    expected, found = (scale(baseline(r), r, mode) for r in (returns, dirty))
    assert torch.equal(found.values, expected.values)
    assert torch.equal(found.valid, expected.valid)
