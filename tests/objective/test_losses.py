"""The edges of REC's clip, and divergences from a reference against a loop over tokens, with gradients."""

import math

import pytest
import torch

from cod_lightning.objective.losses import REC, LossInputs
from cod_lightning.objective.terms import kl_to_reference
from tests.cases import each
from tests.loss_inputs import inputs

ESTIMATORS = {
    "k1": (lambda d: d, lambda d: d),
    "k2": (lambda d: d * d / 2, lambda d: d),
    "k3": (lambda d: math.exp(-d) - 1 + d, lambda d: 1 - math.exp(-d)),
}


@each("estimator", ESTIMATORS)
@each("seed", range(5))
def test_an_estimator_equals_its_definition_gradients_included(estimator, seed):
    x = inputs(seed)
    value, slope = ESTIMATORS[estimator]
    found = kl_to_reference(x.policy_logprobs, x.behaviour_logprobs, x.action_mask, estimator)
    (gradient,) = torch.autograd.grad(found, x.policy_logprobs)
    gaps = {
        (b, t): (x.policy_logprobs - x.behaviour_logprobs)[b, t].item() for b, t in x.action_mask.nonzero().tolist()
    }
    assert found.item() == pytest.approx(sum(map(value, gaps.values())), abs=1e-9)
    assert gradient.abs().gt(0).sum() == len(gaps)
    for at, gap in gaps.items():
        assert gradient[at].item() == pytest.approx(slope(gap), abs=1e-9)


def test_estimators_agree_with_the_divergence_in_expectation_as_their_docstring_says():
    logits = torch.tensor([0.3, -1.0, 0.8, 0.0], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.1, 0.4, -0.5, 0.2], dtype=torch.float64).log_softmax(0)
    policy = logits.log_softmax(0)
    exact = (policy.exp() * (policy - reference)).sum()
    reverse = (reference.exp() * (reference - policy)).sum()
    each = torch.ones(1, 1, dtype=torch.bool)
    values, gradients = {}, {}
    for name in ESTIMATORS:
        terms = [kl_to_reference(policy[i].view(1, 1), reference[i].view(1, 1), each, name) for i in range(4)]
        values[name] = sum(p * t.item() for p, t in zip(policy.exp().tolist(), terms, strict=True))
        expected = sum(p * t for p, t in zip(policy.exp().tolist(), terms, strict=True))
        gradients[name] = torch.autograd.grad(expected, logits, retain_graph=True)[0]
    assert values["k1"] == pytest.approx(exact.item())
    assert values["k3"] == pytest.approx(exact.item())
    of_exact, of_reverse = (torch.autograd.grad(k, logits, retain_graph=True)[0] for k in (exact, reverse))
    torch.testing.assert_close(gradients["k1"], of_exact)
    torch.testing.assert_close(gradients["k2"], of_exact)
    torch.testing.assert_close(gradients["k3"], of_reverse)


def two_tokens(gap, advantage):
    """The first token has that log-ratio and advantage, the second is on-policy with advantage 1."""
    policy, mask = torch.tensor([[-0.5, -0.5]], requires_grad=True), torch.ones(1, 2, dtype=torch.bool)
    return LossInputs(
        policy_logprobs=policy,
        behaviour_logprobs=torch.tensor([[-0.5 - gap, -0.5]]),
        advantages=torch.tensor([[advantage, 1.0]]),
        action_mask=mask,
        num_action_tokens=2,
        episode=torch.arange(1),
        num_episodes=1,
    )


@each("clip", ["one_side", "two_side", "ring"])
@each("weighted", [False, True])
@each(("gap", "advantage"), [(200.0, 1.0), (float("inf"), 1.0), (200.0, 0.0), (float("inf"), 0.0)])
def test_a_token_that_does_not_count_may_have_an_infinite_ratio(gap, advantage, weighted, clip):
    x = two_tokens(gap, advantage)
    out = REC(importance_weights=weighted, clip=clip)(x)
    out.loss.backward()
    assert out.loss.item() == 0.25
    assert x.policy_logprobs.grad.tolist() == [[0.0, -0.5]]
    assert out.num_clipped == (advantage != 0)


@each("stored", [float("inf"), -float("inf"), float("nan")])
def test_the_divergence_has_no_gradient_at_masked_places_whatever_stands_there(stored):
    policy = torch.tensor([[-1.0, stored, -2.0]], requires_grad=True)
    reference = torch.tensor([[-1.5, -1.0, stored]])
    divergence = kl_to_reference(policy, reference, torch.tensor([[True, False, False]]))
    divergence.backward()
    assert divergence.item() == 0.125
    assert policy.grad.tolist() == [[0.5, 0.0, 0.0]]


def test_autocast_does_not_round_the_divergence_or_its_gradient():
    x = inputs(1, dtype=torch.float32)

    def both():
        divergence = kl_to_reference(x.policy_logprobs, x.behaviour_logprobs, x.action_mask)
        return divergence, torch.autograd.grad(divergence, x.policy_logprobs)[0]

    exact, exact_gradient = both()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, gradient = both()
    assert found.dtype == gradient.dtype == torch.float32
    assert torch.equal(found, exact)
    assert torch.equal(gradient, exact_gradient)


def test_k3_of_a_token_that_the_reference_likes_far_better_is_bounded_in_value_and_gradient():
    policy = torch.tensor([[-1.0, -95.0, -200.0, -5000.0]], requires_grad=True)
    value = kl_to_reference(policy, torch.zeros(1, 4), torch.ones(1, 4).bool(), "k3")
    value.backward()
    most = math.exp(30) - 1
    assert float(value.detach()) == pytest.approx(3 * most, rel=1e-5)
    assert policy.grad[0].tolist() == pytest.approx([1 - math.e, -most, -most, -most], rel=1e-5)
