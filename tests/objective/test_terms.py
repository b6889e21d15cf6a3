"""Divergences on sampled tokens: what they leave out, and their means."""

import math

import pytest
import torch

from cod_lightning.methods.jsd import JSD
from cod_lightning.objective.terms import KL, TermInputs, means
from tests.cases import each


@each(("term", "name"), [(JSD(), "jsd_teacher"), (KL(to="teacher", estimator="k3"), "divergence_teacher")])
def test_tokens_without_a_score_and_tokens_of_prompts_are_left_out_and_extremes_stay_finite(term, name):
    policy = torch.tensor([[-1.0, -900.0, -2.0, -3.0]], requires_grad=True)
    teacher = torch.tensor([[-2.0, -0.1, math.nan, 7.0]])
    mask = torch.tensor([[True, True, True, False]])
    sums = term(
        TermInputs(policy_logprobs=policy, entropies=policy.detach(), scores={"teacher": teacher}, action_mask=mask)
    )
    sums.loss.backward()
    assert sums.num_missing == 1
    assert math.isfinite(sums.logged)
    assert policy.grad[0, 2:].tolist() == [0.0, 0.0]
    assert policy.grad.isfinite().all()
    assert policy.grad[0, 1] < 0 < policy.grad[0, 0], "more of what the teacher likes better, less of the other"
    assert term.figures(sums).keys() == {name, "teacher_missing"}


def test_a_mean_is_over_the_tokens_that_have_a_score():
    terms = (KL(), KL(to="teacher"), JSD())
    sums = {"divergence": 2.0, "divergence_teacher": 2.0, "jsd_teacher": 1.0, "teacher_missing": 6.0}
    expected = {"divergence": 0.2, "divergence_teacher": 0.5, "jsd_teacher": 0.25, "teacher_missing": 0.6}
    assert means(terms, sums, 10) == pytest.approx(expected)
    assert means(terms, sums, 6).keys() == {"divergence", "teacher_missing"}, "nothing is known of the teacher's"
    assert means(terms, sums | {"teacher_missing": 9.0}, 10)["jsd_teacher"] == 1.0, "of one token something is"


def test_distillation_has_the_gradient_of_the_release_of_cod_whatever_weights_sampled():
    """There: A = kl_coef (teacher - sampler), then A + sampler - policy, and the mean of -A log-prob, without clip and weight."""
    torch.manual_seed(1)
    policy = (-torch.rand(3, 7, dtype=torch.float64)).requires_grad_()
    teacher, sampler = (-2 * torch.rand(3, 7, dtype=torch.float64) for _ in range(2))
    mask = torch.rand(3, 7) < 0.6
    total = torch.zeros((), dtype=torch.float64)
    for row, token in mask.nonzero().tolist():
        advantage = 1.0 * (teacher - sampler)[row, token]
        advantage = advantage + sampler[row, token] - policy[row, token].detach()
        total = total - advantage * policy[row, token]
    (expected,) = torch.autograd.grad(total / mask.sum(), policy)
    entropies, scores = torch.zeros(3, 7), {"teacher": teacher}
    inputs = TermInputs(policy_logprobs=policy, entropies=entropies, scores=scores, action_mask=mask)
    (found,) = torch.autograd.grad(KL(coefficient=1.0, to="teacher")(inputs).loss / mask.sum(), policy)
    assert torch.allclose(found, expected, atol=1e-12)
