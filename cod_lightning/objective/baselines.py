"""From returns to advantages: an episode is compared with its siblings' at the same position of the same pack."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cod_lightning.objective.returns import Returns


@dataclass(frozen=True)
class Advantages:
    """Advantages of all episodes; 0 where not valid."""

    values: Float[Tensor, "G K E"]
    valid: Bool[Tensor, "G K E"]


class Baseline(ABC):
    """Returns to advantages. An episode needs at least two valid siblings (itself included)."""

    @abstractmethod
    def __call__(self, returns: Returns) -> Advantages:
        """Return minus baseline, where both are known."""


@dataclass(frozen=True)
class GroupMean(Baseline):
    """A_i = R_i - mean_k R_k over the valid siblings of one pack, kind and position. Source: arXiv 2606.20002.

    >>> GroupMean()(Returns(torch.tensor([[[1.0], [0.0]]]), torch.ones(1, 2, 1, dtype=torch.bool))).values.flatten()
    tensor([ 0.5000, -0.5000])
    """

    def __call__(self, returns: Returns) -> Advantages:
        """Centred over survivors."""
        total, count = _sums(returns)
        return _advantages(returns, returns.values - total / count.clamp_min(1))


@dataclass(frozen=True)
class LeaveOneOut(Baseline):
    """A_i = R_i - mean over the *other* valid siblings = n/(n-1) (R_i - mean), with the actual count n.

    Source: LOOP, arXiv 2502.01600, which has a fixed K; ours counts survivors.

    >>> LeaveOneOut()(Returns(torch.tensor([[[1.0], [0.0]]]), torch.ones(1, 2, 1, dtype=torch.bool))).values.flatten()
    tensor([ 1., -1.])
    """

    def __call__(self, returns: Returns) -> Advantages:
        """Compared with everybody else."""
        total, count = _sums(returns)
        return _advantages(returns, returns.values - (total - returns.values) / (count - 1).clamp_min(1))


def scale(advantages: Advantages, returns: Returns, mode: Literal["none", "group", "batch"]) -> Advantages:
    """Divide by the standard deviation of the valid returns in the group, or of the valid advantages in the batch.

    Population standard deviation (division by n): the mean square of a group-mean advantage is then 1 however many
    siblings survive, while the sample one gives (n-1)/n. Where it is 0 the advantages are 0 already and stay so. The
    main runs of arXiv 2606.20002 use `none`.

    >>> returns = Returns(torch.tensor([[[0.2], [0.0]]]), torch.ones(1, 2, 1, dtype=torch.bool))
    >>> scale(GroupMean()(returns), returns, "group").values.flatten()
    tensor([ 1., -1.])
    """
    if mode == "none":
        return advantages
    if mode == "group":
        total, count = _sums(returns)
        squares = torch.where(returns.valid, (returns.values - total / count.clamp_min(1)) ** 2, 0).sum(1, keepdim=True)
        deviation = (squares / count.clamp_min(1)).sqrt()
    else:
        chosen = advantages.values[advantages.valid]
        deviation = chosen.std(correction=0) if len(chosen) else advantages.values.new_tensor(1.0)
    floor = 1e-6
    return replace(
        advantages, values=torch.where(deviation > floor, advantages.values / deviation.clamp_min(floor), 0.0)
    )


def _sums(returns: Returns) -> tuple[Float[Tensor, "G 1 E"], Float[Tensor, "G 1 E"]]:
    """Sum and number of valid returns over siblings."""
    total = torch.where(returns.valid, returns.values, 0.0).sum(dim=1, keepdim=True)
    return total, returns.valid.sum(dim=1, keepdim=True).to(total)


def _advantages(returns: Returns, values: Float[Tensor, "G K E"]) -> Advantages:
    """Zero and invalid wherever the return is unknown or nobody is left to compare with."""
    valid = returns.valid & (returns.valid.sum(dim=1, keepdim=True) >= 2)
    return Advantages(torch.where(valid, values, 0.0), valid)
