"""The divergence on sampled tokens, against the whole distribution."""

import pytest
import torch

from cod_lightning.methods.jsd import JSD
from cod_lightning.objective.terms import TermInputs

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
