"""How far the policy has gone from a frozen reference, estimated on the tokens that were sampled."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Estimator = Literal["k1", "k2", "k3"]


def kl_to_reference(
    policy_logprobs: Float[Tensor, "B T"],
    reference_logprobs: Float[Tensor, "B T"],
    action_mask: Bool[Tensor, "B T"],
    estimator: Estimator = "k2",
) -> Float[Tensor, ""]:
    """Sum over action tokens of an estimator of KL(policy || reference) (nats); divide by the update's token count.

    With d = policy - reference: k1 = d, k2 = d^2 / 2, k3 = exp(-d) - 1 + d (http://joschu.net/blog/kl-approx.html).

    As values k1 and k3 are unbiased and k2 is not; as gradients k2's expectation is that of the divergence when the tokens
    were sampled from the policy, k3's (GRPO's choice) that of KL(reference || policy), and k1's is 0: as a loss it would
    be noise. So k1 here has its own value and k2's gradient.

    >>> kl_to_reference(torch.tensor([[-1.0, -9.0]]), torch.tensor([[-2.0, 0.0]]), torch.tensor([[True, False]]))
    tensor(0.5000)
    """
    gap = torch.where(action_mask, policy_logprobs - reference_logprobs, 0.0)  # masked first: 0 * inf is NaN backwards
    if estimator == "k3":
        return (torch.expm1(-gap) + gap).sum()
    half_square = 0.5 * (gap**2).sum()
    return half_square if estimator == "k2" else half_square - half_square.detach() + gap.detach().sum()
