"""Which tokens Clip-Cov and KL-Cov single out, against the definition."""

import pytest
import torch

from cod_lightning.methods.covariance import ClipCov, KLCov, covariances
from cod_lightning.objective.losses import UpdateTokens
from tests.cases import each


def tokens(seed, rows=20, width=12):
    rng = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, width, generator=rng) < 0.7
    return UpdateTokens(
        behaviour_logprobs=torch.where(mask, -3 * torch.rand(rows, width, generator=rng), 0.0),
        advantages=torch.randn(rows, 1, generator=rng).expand(rows, width) * mask,
        action_mask=mask,
    )


def by_the_definition(x):
    at = [tuple(i) for i in x.action_mask.nonzero().tolist()]
    mean_b = sum(x.behaviour_logprobs[i].item() for i in at) / len(at)
    mean_a = sum(x.advantages[i].item() for i in at) / len(at)
    return {i: (x.behaviour_logprobs[i].item() - mean_b) * (x.advantages[i].item() - mean_a) for i in at}


@each("seed", range(5))
def test_covariances_equal_their_definition(seed):
    x = tokens(seed)
    found = covariances(x)
    assert (found[~x.action_mask] == 0).all()
    for i, expected in by_the_definition(x).items():
        assert found[i].item() == pytest.approx(expected, abs=1e-6)


@each("fraction", [1e-4, 0.02, 0.1])
def test_kl_cov_marks_the_largest_share_and_at_least_one(fraction):
    x = tokens(0)
    marked = KLCov(penalised_fraction=fraction).mark(x, seed=0)
    ranked = sorted(by_the_definition(x).items(), key=lambda item: -item[1])
    number = max(1, int(fraction * len(ranked)))
    assert {tuple(i) for i in marked.nonzero().tolist()} == {i for i, _ in ranked[:number]}


def test_clip_cov_draws_its_share_between_the_bounds_by_seed():
    x = tokens(1)
    loss = ClipCov(drop_fraction=0.05, cov_low=0.2, cov_high=0.7)
    inside = {i for i, c in by_the_definition(x).items() if 0.2 < c < 0.7}
    assert max(by_the_definition(x).values()) > 0.7
    draws = [{tuple(i) for i in loss.mark(x, seed).nonzero().tolist()} for seed in range(40)]
    number = int(0.05 * int(x.action_mask.sum()))
    assert all(draw <= inside and len(draw) == number for draw in draws)
    assert set.union(*draws) == inside
    assert draws[0] == {tuple(i) for i in loss.mark(x, 0).nonzero().tolist()} != draws[1]


@each("loss", [ClipCov(cov_low=50.0, cov_high=60.0), KLCov()])
def test_nothing_is_marked_where_there_is_nothing(loss):
    x = tokens(2)
    blank = UpdateTokens(
        behaviour_logprobs=x.behaviour_logprobs, advantages=x.advantages, action_mask=torch.zeros_like(x.action_mask)
    )
    assert not loss.mark(blank, 0).any()
    if isinstance(loss, ClipCov):
        assert not loss.mark(x, 0).any()
