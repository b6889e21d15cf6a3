"""Baselines and scales over siblings, some of which may be missing."""

from dataclasses import replace

import pytest
import torch

from cod_lightning.credit.baselines import Accepted, AsymRE, GroupMean, LeaveOneOut, deviation, divided
from cod_lightning.credit.returns import EpisodeCredit, TaskCredit
from cod_lightning.credit.table import PerEpisode
from tests.cases import each
from tests.credit_tables import paper_table, random_table, returns_of

BASELINES = [GroupMean(), LeaveOneOut(), AsymRE(shift=-0.2)]


def scale(advantages, returns, mode):
    return replace(advantages, values=divided(advantages.values, deviation(advantages, returns, mode)))


every_return = each("returns", [returns_of(EpisodeCredit(), random_table(seed, missing=0.25)) for seed in range(8)])


@every_return
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


@every_return
def test_asymre_lifts_every_comparison_by_the_same(returns):
    plain, lifted = GroupMean()(returns), AsymRE(shift=-0.2)(returns)
    assert torch.equal(lifted.valid, plain.valid)
    torch.testing.assert_close(lifted.values, plain.values + 0.2 * plain.valid)
    assert torch.equal(AsymRE(shift=0.0)(returns).values, plain.values)


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


RULES = [
    EpisodeCredit(),
    EpisodeCredit(window=2),
    EpisodeCredit(mean=False, discount=0.6),
    EpisodeCredit(discount=0.6),
    TaskCredit(),
]


def reached(rule, baseline, mode):
    """[e, f]: whether the reward of episode f of a lifecycle moves the advantage of its episode e."""
    rng = torch.Generator().manual_seed(0)
    solve = torch.rand(2, 3, 4, generator=rng).double().requires_grad_()
    update = torch.rand(2, 3, 3, generator=rng).double().requires_grad_()
    valid = torch.ones(2, 3, 7, dtype=torch.bool)
    table = paper_table(solve, update, valid=valid, action_counts=valid.long())
    returns = returns_of(rule, table)
    values = scale(baseline(returns), returns, mode).values[1, 1]
    out = torch.zeros(7, 7)
    for e in range(7):
        to_solve, to_update = torch.autograd.grad(values[e], (solve, update), retain_graph=True)
        out[e, 0::2], out[e, 1::2] = to_solve[1, 1].float(), to_update[1, 1].float()
    return out.abs() > 1e-9


@each("mode", ["none", "group"])
@each("baseline", BASELINES)
@each("rule", RULES)
def test_a_reward_never_reaches_a_later_episode_of_its_lifecycle_through_a_baseline(rule, baseline, mode):
    found = reached(rule, baseline, mode)
    assert not found.tril(-1).any()
    assert found.diagonal().all()


@every_return
def test_group_scaling_gives_unit_deviation_over_survivors(returns):
    scaled = scale(GroupMean()(returns), returns, "group")
    for g in range(3):
        for e in range(7):
            alive = scaled.values[g, returns.valid[g, :, e], e]
            if len(alive) >= 2 and alive.abs().max() > 0:
                assert alive.std(correction=0).item() == pytest.approx(1.0, abs=1e-4)


@every_return
def test_batch_scaling_gives_unit_deviation_over_all_that_are_valid(returns):
    advantages = GroupMean()(returns)
    deviation = scale(advantages, returns, "batch").values[advantages.valid].std(correction=0)
    assert deviation.item() == pytest.approx(1.0, abs=1e-4)


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
