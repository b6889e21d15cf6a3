"""Corrections for an engine that is not quite the policy, against loops from their definitions."""

import math
from dataclasses import replace

import pytest
import torch

from cod_lightning.methods.icepop import TokenMask
from cod_lightning.objective.losses import REC
from cod_lightning.objective.mismatch import (
    SequenceMask,
    SequenceTruncate,
    TokenTruncate,
    corrected,
    mismatch_figures,
    mismatch_sums,
)
from cod_lightning.training.update import added
from tests.cases import each
from tests.loss_inputs import LOSSES, inputs, rows_of


def cells(x):
    return [(b, t) for b in range(x.action_mask.shape[0]) for t in range(x.action_mask.shape[1]) if x.action_mask[b, t]]


def token_ratio(x, old, b, t):
    return math.exp(float(old[b, t]) - float(x.behaviour_logprobs[b, t]))


def episode_ratio(x, old, b):
    ratio = 1.0
    for c, t in cells(x):
        if x.episode[c] == x.episode[b]:
            ratio *= token_ratio(x, old, c, t)
    return ratio


def defined(correction, x, old, b, t):
    """The weight of a token, straight from the formula."""
    whole = isinstance(correction, SequenceTruncate | SequenceMask)
    ratio = episode_ratio(x, old, b) if whole else token_ratio(x, old, b, t)
    if isinstance(correction, TokenTruncate | SequenceTruncate):
        return min(ratio, correction.max_weight)
    *_, low, high = (0.0, *vars(correction).values())
    return ratio if low <= ratio <= high else 0.0


CORRECTIONS = [
    TokenTruncate(max_weight=1.3),
    TokenMask(min_ratio=0.7, max_ratio=1.4),
    SequenceTruncate(max_weight=1.5),
    SequenceMask(max_weight=2.5),
]


def old_of(x, seed=5, spread=0.4):
    rng = torch.Generator().manual_seed(seed)
    noise = spread * torch.randn(x.behaviour_logprobs.shape, generator=rng, dtype=x.behaviour_logprobs.dtype)
    return torch.where(x.action_mask, x.behaviour_logprobs + noise, 7.0)  # whatever stands elsewhere


@each("correction", CORRECTIONS)
def test_weights_are_those_of_the_definition_and_0_elsewhere(correction):
    x = inputs(1)
    old = old_of(x)
    found, _ = correction(replace(x, policy_logprobs=old))
    kinds = set()
    for b, t in cells(x):
        expected = defined(correction, x, old, b, t)
        assert float(found[b, t]) == pytest.approx(expected, rel=1e-9)
        kinds.add("changed" if expected in (0.0, getattr(correction, "max_weight", None)) else "kept")
    assert kinds == {"changed", "kept"}
    assert not found[~x.action_mask].any()


@each("correction", CORRECTIONS)
def test_micro_batches_that_hold_whole_episodes_change_no_weight(correction):
    x = inputs(2)
    old = old_of(x)
    whole, _ = correction(replace(x, policy_logprobs=old))
    rows = torch.tensor([3, 4, 5])  # all rows of episode 4
    part, _ = correction(rows_of(replace(x, policy_logprobs=old), rows))
    torch.testing.assert_close(part, whole[rows])


def test_a_weighted_gradient_is_the_plain_one_times_the_weights_with_the_ratio_to_the_old_policy():
    x, correction = inputs(3), CORRECTIONS[0]
    old = old_of(x)
    loss = REC(clip_low=0.2, clip_high=0.2, importance_weights=True, clip="none")
    y, _ = corrected(x, old, correction)
    (found,) = torch.autograd.grad(loss(y).loss, x.policy_logprobs)
    for b, t in cells(x):
        ratio = math.exp(float(x.policy_logprobs[b, t].detach()) - float(old[b, t]))
        weight = defined(correction, x, old, b, t)
        expected = -ratio * weight * float(x.advantages[b, t]) / x.num_action_tokens
        assert float(found[b, t]) == pytest.approx(expected, abs=1e-12)


def test_no_gradient_reaches_the_old_policy():
    x = inputs(3)
    y, _ = corrected(x, x.policy_logprobs, CORRECTIONS[2])
    assert not y.advantages.requires_grad
    assert not y.behaviour_logprobs.requires_grad


@each("name", LOSSES)
def test_where_engine_and_training_agree_no_loss_notices_a_correction(name):
    x, (loss, _) = inputs(4, spread=0.0), LOSSES[name]
    for correction in CORRECTIONS:
        y, num_corrected = corrected(x, x.policy_logprobs, correction)
        torch.testing.assert_close(loss(x).loss, loss(y).loss)
        assert num_corrected == 0
    figures = mismatch_figures(mismatch_sums(x, x.policy_logprobs))
    assert figures["mismatch_ess"] == pytest.approx(1.0)
    assert figures["mismatch_kl"] == pytest.approx(0.0, abs=1e-12)


def test_figures_are_those_of_the_definition():
    x = inputs(6)
    old = old_of(x)
    d = [math.log(token_ratio(x, old, b, t)) for b, t in cells(x)]
    weights = [math.exp(e) for e in d]
    figures = mismatch_figures(mismatch_sums(x, old))
    assert figures["logprob_gap"] == pytest.approx(sum(map(abs, d)) / len(d))
    assert figures["max_logprob_gap"] == pytest.approx(max(map(abs, d)))
    assert figures["mismatch_kl"] == pytest.approx(sum(w - 1 - e for w, e in zip(weights, d, strict=True)) / len(d))
    assert figures["mismatch_ess"] == pytest.approx(sum(weights) ** 2 / (len(d) * sum(w * w for w in weights)))


def test_figures_add_up_over_micro_batches():
    x, old = inputs(7), old_of(inputs(7))
    parts = [mismatch_sums(rows_of(x, torch.tensor(rows)), old[rows]) for rows in ([0, 1, 2], [3, 4, 5, 6])]
    assert mismatch_figures(added({"mismatch": parts[0]}, {"mismatch": parts[1]})["mismatch"]) == pytest.approx(
        mismatch_figures(mismatch_sums(x, old))
    )
    measured = torch.tensor([True] * 3 + [False] * 4)
    assert mismatch_figures(mismatch_sums(x, old, measured)) == pytest.approx(mismatch_figures(parts[0]))


def test_the_estimate_is_the_divergence_of_the_engine_from_the_policy():
    rng = torch.Generator().manual_seed(0)
    engine = torch.log_softmax(torch.randn(20, generator=rng, dtype=torch.float64), 0)
    policy = torch.log_softmax(engine + 0.3 * torch.randn(20, generator=rng, dtype=torch.float64), 0)
    said = torch.multinomial(engine.exp(), 40_000, replacement=True, generator=rng)[None]
    x = inputs(0, width=said.shape[1], episodes=(1,))
    x = replace(x, action_mask=torch.ones_like(said, dtype=torch.bool), behaviour_logprobs=engine[said])
    exact = float((engine.exp() * (engine - policy)).sum())
    assert mismatch_figures(mismatch_sums(x, policy[said]))["mismatch_kl"] == pytest.approx(exact, rel=0.05)


def test_a_token_that_training_finds_impossible_makes_no_figure_infinite():
    x = inputs(8)
    old = x.behaviour_logprobs.clone()
    old[0, 1] = x.behaviour_logprobs[0, 1] - 500
    old[2, 1] = x.behaviour_logprobs[2, 1] + 500
    figures = mismatch_figures(mismatch_sums(x, old))
    assert all(math.isfinite(value) for value in figures.values())


def test_rows_without_actions_count_nothing():
    x = inputs(9)
    x = replace(x, action_mask=torch.zeros_like(x.action_mask))
    assert mismatch_figures(mismatch_sums(x, old_of(x))) == {}
    assert not any(corrected(x, old_of(x), one)[0].advantages.isnan().any() for one in CORRECTIONS)
