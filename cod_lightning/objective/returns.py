"""From rewards to returns: what an episode is credited with, by position in the pack.

A rule is a frozen dataclass that YAML names with `model.credit.class_path`. Every rule says which returns are valid: those
for which no reward that they need is missing.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cod_lightning.errors import ConfigError
from cod_lightning.objective.batch import CreditTable


@dataclass(frozen=True)
class Returns:
    """Returns of all episodes, and which of them are known."""

    values: Float[Tensor, "G K E"]
    valid: Bool[Tensor, "G K E"]


class CreditRule(ABC):
    """Rewards to returns."""

    @abstractmethod
    def __call__(self, table: CreditTable) -> Returns:
        """The return of every episode in the table."""


@dataclass(frozen=True, kw_only=True)
class EpisodeCredit(CreditRule):
    """Fine-grained credit of CoD: each episode is credited with what came of it.

    Rewards-to-go of solve j: [x_j, x_{j+1}, ..., x_{N-1}]; of update j: [z_j, x_{j+1}, ..., x_{N-1}], its own format
    reward and the tasks solved with what it wrote. Source: arXiv 2606.20002; its main runs use `mean`.
    """

    style: Literal["mean", "sliding_window_mean", "discounted"] = "mean"
    """mean of the list; mean of its first `window` entries; or sum of discount**k times entry k."""
    window: int | None = None
    """Entries that count for `sliding_window_mean`, at least 1."""
    discount: float | None = None
    """Factor per task for `discounted`, in (0, 1]."""

    def __post_init__(self) -> None:
        if (self.window is not None) != (self.style == "sliding_window_mean"):
            raise ConfigError(
                "model.credit.window", self.window, "a number exactly with style=sliding_window_mean", "Set both."
            )
        if (self.discount is not None) != (self.style == "discounted"):
            raise ConfigError(
                "model.credit.discount", self.discount, "a number exactly with style=discounted", "Set both."
            )
        if self.window is not None and self.window < 1:
            raise ConfigError("model.credit.window", self.window, "at least 1", "2 looks one task ahead.")
        if self.discount is not None and not 0 < self.discount <= 1:
            raise ConfigError("model.credit.discount", self.discount, "a number in (0, 1]", "0.6 is a usual value.")

    def __call__(self, table: CreditTable) -> Returns:
        """Weighted sums of rewards-to-go, all episodes at once."""
        weights = self._weights(table.solve_rewards.shape[-1]).to(table.solve_rewards)
        rewards = _interleave(table.solve_rewards, table.update_rewards)
        needs = weights != 0
        missing = (~table.valid).to(weights) @ needs.to(weights).T
        return Returns(rewards @ weights.T, missing == 0)

    def _weights(self, num_tasks: int) -> Float[Tensor, "E E"]:
        """[e, f]: the weight of episode f's reward in episode e's return."""
        size = 2 * num_tasks - 1
        weights = torch.zeros(size, size, dtype=torch.float64)
        for e in range(size):
            to_go = [e, *range(e + 2 - e % 2, size, 2)]  # itself, then the solves that follow
            for k, f in enumerate(to_go[: self.window]):
                weights[e, f] = 1.0 if self.discount is None else self.discount**k
            if self.discount is None:
                weights[e] /= weights[e].sum()
        return weights


@dataclass(frozen=True, kw_only=True)
class TrajectoryCredit(CreditRule):
    """Coarse credit of earlier work: every episode of a lifecycle gets the sum of all its task rewards.

    Source: the comparison in arXiv 2606.20002, there with division by the group's standard deviation (`model.scale=group`).
    """

    def __call__(self, table: CreditTable) -> Returns:
        """The same number for all E episodes; valid where no task reward is missing."""
        total = table.solve_rewards.sum(dim=-1, keepdim=True)
        complete = table.valid[..., 0::2].all(dim=-1, keepdim=True)
        return Returns(total.expand(table.valid.shape).clone(), complete & table.valid)


@dataclass(frozen=True, kw_only=True)
class TaskCredit(CreditRule):
    """Ordinary task-by-task RL: each episode gets only its own reward, so nothing rewards a useful context."""

    def __call__(self, table: CreditTable) -> Returns:
        """The rewards themselves."""
        return Returns(_interleave(table.solve_rewards, table.update_rewards), table.valid)


def _interleave(solve: Float[Tensor, "G K N"], update: Float[Tensor, "G K N-1"]) -> Float[Tensor, "G K E"]:
    """Rewards in the order of the episodes."""
    out = solve.new_empty(*solve.shape[:2], solve.shape[2] + update.shape[2])
    out[..., 0::2] = solve
    out[..., 1::2] = update
    return out
