"""From returns to advantages: an episode is compared with its siblings' at the same position of the same pack."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cod_lightning.credit.table import EpisodeTable, PerEpisode


class Baseline(ABC):
    """Returns to advantages. An episode needs at least two valid siblings (itself included)."""

    @property
    def compares(self) -> bool:
        """Whether a single lifecycle of a pack has no advantages."""
        return True

    @property
    def scales(self) -> bool:
        """Whether advantages are in units of reward, so that `model.scale` divides them by a deviation, and attempts and losses
        compare siblings by them."""
        return True

    @property
    def of_equals(self) -> float:
        """Advantage of siblings that all do equally well."""
        return 0.0

    @abstractmethod
    def __call__(self, returns: PerEpisode) -> PerEpisode:
        """Advantages: return minus baseline where both are known, else 0 and not valid. A column, [:, :, e], is compared."""

    def of_all(self, table: EpisodeTable, returns: PerEpisode) -> PerEpisode:
        """[F] advantages of lifecycles' own episodes, whatever numbers of siblings and episodes packs have."""
        values, valid = torch.zeros_like(returns.values), torch.zeros_like(returns.valid)
        for entries, there, arranged in by_packs(table, returns):
            found = self(arranged)
            values[entries[there]], valid[entries[there]] = found.values[there], found.valid[there]
        return PerEpisode(values, valid)


def by_packs(
    table: EpisodeTable, returns: PerEpisode
) -> Iterator[tuple[Int[Tensor, "G K C"], Bool[Tensor, "G K C"], PerEpisode]]:
    """Entries, which of them there are, and their returns, for each layout of the table."""
    for entries in table.layouts:
        there = entries >= 0
        yield entries, there, PerEpisode(returns.values[entries], returns.valid[entries] & there)


@dataclass(frozen=True)
class GroupMean(Baseline):
    """A_i = R_i - mean_k R_k over the valid siblings of one pack, kind and position. Source: arXiv 2606.20002.

    >>> GroupMean()(PerEpisode(torch.tensor([[[1.0], [0.0]]]), torch.ones(1, 2, 1, dtype=torch.bool))).values.flatten()
    tensor([ 0.5000, -0.5000])
    """

    def __call__(self, returns: PerEpisode) -> PerEpisode:
        return advantages_of(returns, returns.values - mean(returns))


@dataclass(frozen=True)
class LeaveOneOut(Baseline):
    """A_i = R_i - mean over the *other* valid siblings = n/(n-1) (R_i - mean), with the actual count n.

    Source: LOOP, arXiv 2502.01600, which has a fixed K; ours counts survivors.

    >>> LeaveOneOut()(PerEpisode(torch.tensor([[[1.0], [0.0]]]), torch.ones(1, 2, 1, dtype=torch.bool))).values.flatten()
    tensor([ 1., -1.])
    """

    def __call__(self, returns: PerEpisode) -> PerEpisode:
        total, count = sums(returns)
        return advantages_of(returns, returns.values - (total - returns.values) / (count - 1).clamp_min(1))


@dataclass(frozen=True)
class TermsAlone(Baseline):
    """A_i = 0 wherever there is a return: rewards have no say, and the loss's terms train all tokens, as in distillation.

    >>> TermsAlone()(PerEpisode(torch.tensor([[[1.0]]]), torch.ones(1, 1, 1, dtype=torch.bool)))
    PerEpisode(values=tensor([[[0.]]]), valid=tensor([[[True]]]))
    """

    @property
    def compares(self) -> bool:
        return False

    def __call__(self, returns: PerEpisode) -> PerEpisode:
        return PerEpisode(torch.zeros_like(returns.values), returns.valid)


def deviation(advantages: PerEpisode, returns: PerEpisode, mode: Literal["group", "batch"]) -> Tensor:
    """Standard deviation of the valid returns in the group, [G 1 E], or of the valid advantages in the batch, one number; where
    there is one return alone, or no advantage, 1.

    Advantages are divided by it. Population standard deviation (division by n): the mean square of a group-mean advantage is
    then 1 however many siblings survive, while the sample one gives (n-1)/n. Where it is 0 so are the advantages: already, or by
    `divided` (`AsymRE`). The main runs of arXiv 2606.20002 are without.

    >>> returns = PerEpisode(torch.tensor([[[0.2], [0.0]]]), torch.ones(1, 2, 1, dtype=torch.bool))
    >>> deviation(GroupMean()(returns), returns, "group").flatten()
    tensor([0.1000])
    """
    if mode == "group":
        count = returns.valid.sum(dim=1, keepdim=True)
        squares = torch.where(returns.valid, (returns.values - mean(returns)) ** 2, 0).sum(1, keepdim=True)
        return torch.where(count > 1, (squares / count.clamp_min(1)).sqrt(), 1.0).to(returns.values)
    chosen = advantages.values[advantages.valid]
    return chosen.std(correction=0) if len(chosen) else advantages.values.new_tensor(1.0)


def divided(values: Tensor, deviation: Tensor) -> Tensor:
    """The quotient; 0 where there is no deviation."""
    floor = 1e-6
    return torch.where(deviation > floor, values / deviation.clamp_min(floor), 0.0)


def sums(returns: PerEpisode) -> tuple[Float[Tensor, "G 1 E"], Float[Tensor, "G 1 E"]]:
    """Sum and number of valid returns over siblings, in float64: equal ones, however large, are their own mean exactly."""
    total = torch.where(returns.valid, returns.values, 0.0).sum(dim=1, keepdim=True, dtype=torch.float64)
    return total, returns.valid.sum(dim=1, keepdim=True).to(total)


def mean(returns: PerEpisode) -> Float[Tensor, "G 1 E"]:
    """Of the valid returns over siblings."""
    total, count = sums(returns)
    return total / count.clamp_min(1)


def advantages_of(returns: PerEpisode, values: Float[Tensor, "G K E"]) -> PerEpisode:
    """Zero and invalid wherever the return is unknown or no sibling is left to compare with."""
    valid = returns.valid & (returns.valid.sum(dim=1, keepdim=True) >= 2)
    return PerEpisode(torch.where(valid, values, 0.0).to(returns.values), valid)
