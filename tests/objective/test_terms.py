"""Divergences on sampled tokens, against the whole distribution."""

import math

import pytest
import torch

from cod_lightning.callbacks.weight_sync import WeightSync
from cod_lightning.credit.baselines import TermsAlone
from cod_lightning.objective.terms import JSD, KL, ObservationLoss, TermInputs, means
from tests.cases import each
from tests.small_fit import Updates, small_fit
from tests.stubs import WordWorld

VOCABULARY = 6


def forward(policy, teacher):
    """KL(teacher || policy) over all tokens (nats), from log-probs [V]."""
    total = torch.zeros((), dtype=torch.float64)
    for token in range(VOCABULARY):
        total = total + teacher[token].exp() * (teacher[token] - policy[token])
    return total


def whole(policy, teacher, beta):
    """The Jensen-Shannon divergence over all tokens (nats), from log-probs [V]."""
    p, q = teacher.exp(), policy.exp()
    mixed = (beta * p + (1 - beta) * q).log()
    return beta * (p * (teacher - mixed)).sum() + (1 - beta) * (q * (policy - mixed)).sum()


def expectation(term, policy, teacher, logits):
    """Of the logged value, and of the loss's gradient, where each token comes as often as the policy samples it."""
    value, gradient = 0.0, torch.zeros(VOCABULARY, dtype=torch.float64)
    for token in range(VOCABULARY):
        inputs = TermInputs(
            policy_logprobs=policy[token].view(1, 1),
            entropies=torch.zeros(1, 1),
            scores={"teacher": teacher[token].view(1, 1)},
            action_mask=torch.ones(1, 1).bool(),
        )
        sums, weight = term(inputs), float(policy[token].detach().exp())
        value += weight * sums.logged
        gradient += weight * torch.autograd.grad(sums.loss, logits, retain_graph=True)[0]
    return value, gradient


@pytest.fixture
def drawn():
    """Logits, and log-probs of the policy and of a teacher that is surer."""
    torch.manual_seed(0)
    logits = torch.randn(VOCABULARY, dtype=torch.float64, requires_grad=True)
    return logits, logits.log_softmax(0), (2 * torch.randn(VOCABULARY, dtype=torch.float64)).log_softmax(0)


@pytest.mark.parametrize("beta", [0.001, 0.1, 0.5, 0.9])
def test_value_and_gradient_of_the_jsd_are_in_expectation_those_of_the_whole_distribution(drawn, beta):
    logits, policy, teacher = drawn
    (expected,) = torch.autograd.grad(whole(policy, teacher, beta), logits, retain_graph=True)
    value, gradient = expectation(JSD(beta=beta), policy, teacher, logits)
    assert value == pytest.approx(float(whole(policy, teacher, beta).detach()), abs=1e-9)
    assert torch.allclose(gradient, expected, atol=1e-9)
    if beta == 0.001:
        (limit,) = torch.autograd.grad(forward(policy, teacher), logits)
        assert torch.allclose(gradient / beta, limit, atol=0.02), "towards forward KL"


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


def test_observations_are_what_comes_after_the_first_action_and_the_policy_did_not_sample(tmp_path):
    """In a training of it alone the policy learns what its world shows, and its actions have no other gradient."""
    updates = Updates()
    module = {"terms": [ObservationLoss(coefficient=1.0)], "baseline": TermsAlone(), "reweight": None}
    small_fit(tmp_path, WeightSync(), updates, world=Alike(max_turns=3), module=module, lr=3e-2, rollouts_per_epoch=5)
    for batch in updates.batches:
        for row in range(len(batch)):
            ids, mask = batch.token_ids[row, : batch.lengths[row]], batch.action_mask[row]
            first = mask.nonzero()[0].item()
            expected = [t > first and not mask[t] for t in range(len(ids))]
            assert batch.observation_mask[row].tolist() == expected + [False] * (len(mask) - len(ids))
    first, *_, last = (update["train/observation_loss"] for update in updates.values)
    assert last < 0.5 * first


class Alike(WordWorld):
    """Always shows the same."""

    def step(self, action):
        return "w3 w4", *super().step(action)[1:]


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
