"""From rewards to returns: what an episode is credited with, by position in the pack.

A rule is a frozen dataclass that YAML names with `model.credit.class_path`. Every rule says which returns are valid: those
for which no reward that they need is missing.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cod_lightning.credit.table import CreditTable, EpisodeTable, kind_id
from cod_lightning.errors import ConfigError, check_at_least
from cod_lightning.types import EpisodeKind


@dataclass(frozen=True)
class Returns:
    """Returns of episodes, and which of them are known."""

    values: Float[Tensor, "... E"]
    """Without meaning where not valid."""
    valid: Bool[Tensor, "... E"]
    kinds: Int[Tensor, " E"] | None = None
    """Kind of each episode, for baselines that pool episodes of one kind."""


class CreditRule(ABC):
    """Rewards to returns, lifecycle by lifecycle."""

    def check(self, num_tasks: int) -> None:
        """Raise `ConfigError` if the rule has no meaning for packs of that many tasks."""

    def weights(self, kinds: Int[Tensor, " E"], paid: Bool[Tensor, " E"] | None = None) -> Float[Tensor, "E E"]:
        """[e, f]: the weight of episode f's reward in the return of episode e, for rules that credit each episode apart."""
        raise ConfigError(
            "model.credit",
            type(self).__name__,
            "a rule that credits each episode with what came of it, since attempts from a snapshot measure only that",
            "Choose credit=EpisodeCredit, or a data.program without attempts.",
        )

    @abstractmethod
    def __call__(self, table: CreditTable) -> Returns:
        """The return of every episode in the table."""

    def of_all(self, table: EpisodeTable) -> Returns:
        """[N] the returns of lifecycles' own episodes, whatever orders they have."""
        values = torch.zeros(table.num_own, dtype=table.rewards.dtype)
        valid = torch.zeros_like(values, dtype=torch.bool)
        for entries, lives in table.lifecycles:
            found = self(lives)
            values[entries], valid[entries] = found.values, found.valid
        return Returns(values, valid)


@dataclass(frozen=True, kw_only=True)
class EpisodeCredit(CreditRule):
    """Fine-grained credit of CoD: each episode is credited with what came of it.

    Rewards-to-go of an episode: its own reward, then those of the solve episodes after it, in their order. In the
    paper's that is [x_j, x_{j+1}, ..., x_{N-1}] for solve j and [z_j, x_{j+1}, ..., x_{N-1}] for update j: its format reward
    and the tasks solved with what it wrote. Source: arXiv 2606.20002; its main runs use `mean`. The list of an episode that its
    program paid (`Agent.pay`) is its own reward alone: what paid it says already what came of it.

    >>> valid, kinds = torch.ones(1, 1, 3, dtype=torch.bool), torch.tensor([0, 1, 0])
    >>> rewards = torch.tensor([[[0.0, -0.1, 1.0]]])
    >>> EpisodeCredit()(CreditTable(rewards=rewards, valid=valid, kinds=kinds)).values
    tensor([[[0.5000, 0.4500, 1.0000]]])
    """

    style: Literal["mean", "sliding_window_mean", "discounted", "discounted_mean"] = "mean"
    """mean of the list; mean of its first `window` entries; sum of discount**k times entry k; or that sum divided by the
    sum of its factors (ours: returns of early and late positions then have one size, however long the pack)."""
    window: int | None = None
    """Entries that count for `sliding_window_mean`, at least 1 and at most the pack's tasks."""
    discount: float | None = None
    """Factor per task for `discounted` and `discounted_mean`, in (0, 1]."""

    def __post_init__(self) -> None:
        if (self.window is not None) != (self.style == "sliding_window_mean"):
            raise ConfigError(
                "model.credit.window", self.window, "a number exactly with style=sliding_window_mean", "Set both."
            )
        if (self.discount is not None) != self.style.startswith("discounted"):
            expected = "a number exactly with style=discounted or discounted_mean"
            raise ConfigError("model.credit.discount", self.discount, expected, "Set both.")
        check_at_least("model.credit.window", self.window, 1, "2 looks one task ahead.")
        if self.discount is not None and not 0 < self.discount <= 1:
            raise ConfigError("model.credit.discount", self.discount, "a number in (0, 1]", "0.6 is a usual value.")

    def check(self, num_tasks: int) -> None:
        if self.window is not None and self.window > num_tasks:
            raise ConfigError(
                "model.credit.window",
                self.window,
                f"at most data.pack_size={num_tasks}, since no later task is there to count",
                "Lower it, or use style=mean, which takes all of them.",
            )

    def __call__(self, table: CreditTable) -> Returns:
        """Weighted sums of rewards-to-go, all episodes at once; in float64, which neither autocast nor TF32 rounds."""
        listed, weights = self._listed(table.kinds, table.paid)
        missing = (~table.valid).double() @ listed.double().T
        values = (table.known_rewards.double() @ weights.T).to(table.rewards)
        return Returns(values, missing == 0, table.kinds)

    def weights(self, kinds: Int[Tensor, " E"], paid: Bool[Tensor, " E"] | None = None) -> Float[Tensor, "E E"]:
        return self._listed(kinds, paid)[1]

    def _listed(
        self, kinds: Int[Tensor, " E"], paid: Bool[Tensor, " E"] | None
    ) -> tuple[Bool[Tensor, "E E"], Float[Tensor, "E E"]]:
        """[e, f]: whether episode f's reward counts in episode e's return, and its weight there."""
        solves, index = kinds == kind_id(EpisodeKind.SOLVE), torch.arange(len(kinds), device=kinds.device)
        num_solved = solves.cumsum(0)
        place = num_solved - num_solved[:, None]  # of f in the list of e, in which e itself is at 0
        later = solves & (index > index[:, None])
        listed = (index == index[:, None]) | (later if paid is None else later & ~paid[:, None])
        if self.window is not None:
            listed &= place < self.window
        weights = listed.double()
        if self.discount is not None:
            weights = weights * self.discount ** place.clamp_min(0).double()
        return listed, weights if self.style == "discounted" else weights / weights.sum(dim=1, keepdim=True)


@dataclass(frozen=True, kw_only=True)
class TrajectoryCredit(CreditRule):
    """Coarse credit of earlier work: an episode gets the sum of its lifecycle's task rewards, unless its program paid it.

    Source: the comparison in arXiv 2606.20002, there with division by the group's standard deviation (`model.scale=group`).
    With that scale and `method=grpo` it is DCPO (arXiv 2510.12635): a trajectory is cut where the context is edited, and every
    segment gets the advantage of the whole. Our episodes are those segments. Checked against its abstract only: which
    normalisation it has, and how it averages over segments, we do not know.
    """

    def __call__(self, table: CreditTable) -> Returns:
        """The same number for all E episodes, but for those that were paid; valid where no task reward is missing."""
        total = table.known_rewards[..., table.solves].sum(dim=-1, keepdim=True)
        complete = table.valid[..., table.solves].all(dim=-1, keepdim=True)
        paid = torch.zeros_like(table.solves) if table.paid is None else table.paid
        values = torch.where(paid, table.known_rewards, total)
        return Returns(values, (complete | paid) & table.valid, table.kinds)


@dataclass(frozen=True, kw_only=True)
class TaskCredit(CreditRule):
    """Ordinary task-by-task RL: each episode gets only its own reward, so nothing rewards a useful context."""

    def weights(self, kinds: Int[Tensor, " E"], paid: Bool[Tensor, " E"] | None = None) -> Float[Tensor, "E E"]:
        return torch.eye(len(kinds), dtype=torch.float64, device=kinds.device)

    def __call__(self, table: CreditTable) -> Returns:
        return Returns(table.known_rewards, table.valid, table.kinds)
