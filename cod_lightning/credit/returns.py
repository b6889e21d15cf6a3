"""From rewards to returns: what an episode is credited with, by position in the pack.

A rule is a frozen dataclass that YAML names with `model.credit.class_path`. It gives the weight of each reward in each return,
R_e = sum_f w_ef r_f; a program may say those of an episode itself (`Agent.pay`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cod_lightning.credit.table import EpisodeTable, PerEpisode, kind_id
from cod_lightning.ranges import Count, PositiveShare
from cod_lightning.types import EpisodeKind


class CreditRule(ABC):
    """Rewards to returns, lifecycle by lifecycle."""

    @abstractmethod
    def weights(self, kinds: Int[Tensor, " E"]) -> Float[Tensor, "E E"]:
        """[e, f]: the weight of episode f's reward in the return of episode e."""

    def by_lifecycles(self, table: EpisodeTable) -> Iterator[tuple[Int[Tensor, "L E"], Float[Tensor, "E E"]]]:
        """Own entries of lifecycles, and the weights of rewards in their returns, in float64: the rule's, or a program's own."""
        for entries in table.lifecycles:
            weights = self.weights(table.kinds[entries[0]]).double().clone()
            for e, entry in enumerate(entries[0].tolist()):
                if entry in table.weights:
                    weights[e] = 0.0
                    for f, weight in table.weights[entry]:
                        weights[e, f] = weight
            yield entries, weights

    def __call__(self, table: EpisodeTable) -> PerEpisode:
        """[F] returns of lifecycles' own episodes: weighted sums of rewards, valid where an episode's own reward and those with a
        weight are known. Attempts have none.

        In float64, which neither autocast nor TF32 rounds.
        """
        values, valid = torch.zeros_like(table.rewards), torch.zeros_like(table.valid)
        for entries, weights in self.by_lifecycles(table):
            needed = (weights != 0) | torch.eye(len(weights), dtype=torch.bool)
            values[entries] = (table.known_rewards[entries].double() @ weights.T).to(values)
            valid[entries] = (~table.valid[entries]).double() @ needed.double().T == 0
        return PerEpisode(values, valid)


@dataclass(frozen=True, kw_only=True)
class EpisodeCredit(CreditRule):
    """Fine-grained credit of CoD: each episode is credited with what came of it.

    Rewards-to-go of an episode: its own reward, then those of the solve episodes after it, in their order. In the
    paper's that is [x_j, x_{j+1}, ..., x_{N-1}] for solve j and [z_j, x_{j+1}, ..., x_{N-1}] for update j: its format reward
    and the tasks solved with what it wrote. Source: arXiv 2606.20002; its main runs use `mean`.

    >>> EpisodeCredit().weights(torch.tensor([0, 1, 0])) @ torch.tensor([0.0, -0.1, 1.0]).double()
    tensor([0.5000, 0.4500, 1.0000], dtype=torch.float64)
    """

    mean: bool = True
    """Divide by the sum of the factors, so that returns of early and late positions have one size; else the list is summed."""
    window: Count | None = None
    """Entries of the list that count, the first ones; null: all."""
    discount: PositiveShare = 1.0
    """Factor per task: entry k counts discount**k times."""

    def weights(self, kinds: Int[Tensor, " E"]) -> Float[Tensor, "E E"]:
        solves, index = kinds == kind_id(EpisodeKind.SOLVE), torch.arange(len(kinds), device=kinds.device)
        num_solved = solves.cumsum(0)
        place = num_solved - num_solved[:, None]  # of f in the list of e, in which e itself is at 0
        listed = (index == index[:, None]) | (solves & (index > index[:, None]))
        if self.window is not None:
            listed &= place < self.window
        weights = listed * self.discount ** place.clamp_min(0).double()
        return weights / weights.sum(dim=1, keepdim=True) if self.mean else weights


@dataclass(frozen=True, kw_only=True)
class TrajectoryCredit(CreditRule):
    """Coarse credit of earlier work: every episode gets the sum of its lifecycle's task rewards.

    Source: the comparison in arXiv 2606.20002, there with division by the group's standard deviation (`model.scale=group`).
    With that scale and `method=grpo` it is DCPO (arXiv 2510.12635): a trajectory is cut where the context is edited, and every
    segment gets the advantage of the whole. Our episodes are those segments. Checked against its abstract only: which
    normalisation it has, and how it averages over segments, we do not know.
    """

    def weights(self, kinds: Int[Tensor, " E"]) -> Float[Tensor, "E E"]:
        return (kinds == kind_id(EpisodeKind.SOLVE)).double().expand(len(kinds), -1)


@dataclass(frozen=True, kw_only=True)
class TaskCredit(CreditRule):
    """Ordinary task-by-task RL: each episode gets only its own reward, so nothing rewards a useful context."""

    def weights(self, kinds: Int[Tensor, " E"]) -> Float[Tensor, "E E"]:
        return torch.eye(len(kinds), dtype=torch.float64, device=kinds.device)
