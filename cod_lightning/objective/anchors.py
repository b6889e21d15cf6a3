"""Comparisons that need extra rollouts from one shared context: their arithmetic. No rollout makes such tables yet.

Episodes at the same position start from different contexts, so their mean is not strictly a baseline (a weak point that
arXiv 2606.20002 names). Two remedies: solve the same task M times from one context and compare those attempts with each
other; and measure a context by what tasks earn with it less what they earn without it.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cod_lightning.errors import ConfigError
from cod_lightning.objective.baselines import Advantages, LeaveOneOut
from cod_lightning.objective.returns import Returns


def anchored(rewards: Float[Tensor, "A M"], valid: Bool[Tensor, "A M"]) -> Advantages:
    """A_m = r_m - mean of the other valid attempts: M attempts at one task from one context, for each of A anchors.

    The result has shape [A, M, 1], as if each anchor were a pack with episodes of one position. Source: the local
    re-rolls of Memory-R2, which compare from one memory state; leave-one-out is ours.

    >>> anchored(torch.tensor([[1.0, 0.0, 0.5]]), torch.tensor([[True, True, False]])).values.flatten()
    tensor([ 1., -1.,  0.])
    """
    if rewards.shape[1] < 2:
        expected = "at least 2 attempts, since an attempt is compared with the others from its context"
        raise ConfigError("anchor attempts", rewards.shape[1], expected, "4 is a usual number.")
    return LeaveOneOut()(Returns(rewards[..., None], valid[..., None]))


def context_worth(
    with_context: Float[Tensor, "C M"],
    with_valid: Bool[Tensor, "C M"],
    without: Float[Tensor, "C L"],
    without_valid: Bool[Tensor, "C L"],
) -> tuple[Float[Tensor, " C"], Bool[Tensor, " C"]]:
    """Counterfactual credit of C contexts: mean reward of a later task with it minus without it, and where it is known.

    >>> one = torch.ones(1, 2, dtype=torch.bool)
    >>> context_worth(torch.tensor([[1.0, 1.0]]), one, torch.tensor([[0.0, 1.0]]), one)
    (tensor([0.5000]), tensor([True]))
    """

    def mean(rewards: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
        count = valid.sum(dim=1)
        return torch.where(valid, rewards, 0.0).sum(dim=1) / count.clamp_min(1), count > 0

    (gained, has), (otherwise, has_other) = mean(with_context, with_valid), mean(without, without_valid)
    known = has & has_other
    return torch.where(known, gained - otherwise, 0.0), known


def with_worth(advantages: Advantages, worth: Float[Tensor, "G K N-1"], known: Bool[Tensor, "G K N-1"]) -> Advantages:
    """Update episodes whose context was measured get its worth as advantage; all others keep theirs.

    The reward without the context is the baseline, so siblings are not needed, and a measured episode is valid.

    >>> plain = Advantages(torch.zeros(1, 1, 3), torch.zeros(1, 1, 3, dtype=torch.bool))
    >>> with_worth(plain, torch.tensor([[[0.5]]]), torch.tensor([[[True]]])).values.flatten()
    tensor([0.0000, 0.5000, 0.0000])
    """
    values, valid = advantages.values.clone(), advantages.valid.clone()
    values[..., 1::2] = torch.where(known, worth.to(values), values[..., 1::2])
    valid[..., 1::2] |= known
    return Advantages(values, valid)
