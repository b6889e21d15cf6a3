"""Means by position that stay right over batches and ranks: sums and counts are added up, then divided once."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torchmetrics import Metric

from cod_lightning.types import Lifecycle


class PositionSummary(NamedTuple):
    """Means over lifecycles; NaN where none had a value. (A tuple, since torchmetrics rebuilds what it returns.)"""

    reward: tuple[float, ...]
    """[N] mean reward of the solve episodes at each position."""
    success: tuple[float, ...]
    """[N] share of them that solved their task."""
    num: tuple[int, ...]
    """[N] lifecycles behind each mean."""
    context_parse_rate: float
    """Share of update episodes whose context parsed."""
    num_updates: int
    """Update episodes behind it."""
    num_lifecycles: int
    """All lifecycles, those that failed included."""
    success_new: float
    """Share solved of the tasks that are unlike all earlier ones of the pack; NaN where no task was a repeat."""
    success_repeated: float
    """Share solved of the others."""

    @property
    def cod_gain(self) -> float:
        """Success at the last minus success at the first position."""
        return self.success[-1] - self.success[0] if self.success else math.nan

    def scalars(self) -> dict[str, float]:
        """By the names that metrics have in logs, without the stage; what is NaN is left out.

        `reward/position_K`, `success/position_K`, `num/position_K`, `cod_gain`, `context_parse_rate`, `lifecycles`, and
        `success/new`, `success/repeated` where packs ask for the same again.
        """
        named = {f"reward/position_{n}": value for n, value in enumerate(self.reward)}
        named |= {f"success/position_{n}": value for n, value in enumerate(self.success)}
        named |= {f"num/position_{n}": float(value) for n, value in enumerate(self.num)}
        named |= {"cod_gain": self.cod_gain, "context_parse_rate": self.context_parse_rate}
        named["lifecycles"] = float(self.num_lifecycles)
        named |= {"success/new": self.success_new, "success/repeated": self.success_repeated}
        return {name: value for name, value in named.items() if not math.isnan(value)}


class PositionMetrics(Metric):
    """Reward, success and context parses by position, weighted by lifecycles.

    Args:
        max_positions: Longest pack it has room for (states that are summed over ranks have a fixed size).
    """

    full_state_update = False
    is_differentiable = False
    reward_sum: Float[Tensor, " M"]
    success_sum: Float[Tensor, " M"]
    count: Float[Tensor, " M"]
    parse_sum: Float[Tensor, ""]
    parse_count: Float[Tensor, ""]
    num_lifecycles: Float[Tensor, ""]
    repeat_sum: Float[Tensor, ""]
    repeat_count: Float[Tensor, ""]
    num_positions: Float[Tensor, ""]

    def __init__(self, max_positions: int = 256) -> None:
        super().__init__()
        self.max_positions = max_positions
        for name in ("reward_sum", "success_sum", "count"):
            self.add_state(name, torch.zeros(max_positions, dtype=torch.float64), dist_reduce_fx="sum")
        for name in ("parse_sum", "parse_count", "num_lifecycles", "repeat_sum", "repeat_count"):
            self.add_state(name, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("num_positions", torch.zeros((), dtype=torch.float64), dist_reduce_fx="max")

    def update(self, lifecycles: Sequence[Lifecycle]) -> None:
        """Count these lifecycles; episodes without a reward are left out."""
        longest = max((len(lifecycle.solves) for lifecycle in lifecycles), default=0)
        if longest > self.max_positions:
            raise ValueError(f"a pack of {longest} tasks; there is room for max_positions={self.max_positions}")
        sums = [[0.0] * self.max_positions for _ in range(3)]
        for solve in (solve for life in lifecycles for solve in life.solves):
            if solve.reward is not None:
                for row, value in zip(sums, (solve.reward, float(bool(solve.success)), 1.0), strict=True):
                    row[solve.position] += value
        rewards, successes, counts = torch.tensor(sums, dtype=torch.float64, device=self.count.device)
        self.reward_sum += rewards
        self.success_sum += successes
        self.count += counts
        parsed = [e.success for lifecycle in lifecycles for e in lifecycle.updates if e.success is not None]
        self.parse_sum += sum(parsed)
        self.parse_count += len(parsed)
        repeated = [e.success for life in lifecycles for e in life.solves if e.repeat and e.success is not None]
        self.repeat_sum += sum(repeated)
        self.repeat_count += len(repeated)
        self.num_lifecycles += len(lifecycles)
        self.num_positions = self.num_positions.clamp_min(longest)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> "PositionMetrics":
        """Follows moves to a device, no casts: `trainer.precision=bf16-true` would stop counting at 256."""
        return super()._apply(lambda state: state.to(fn(state).device), exclude_state)  # pyright: ignore

    def compute(self) -> PositionSummary:
        """The means over all lifecycles of all ranks."""
        num_positions = int(self.num_positions)
        counts = self.count[:num_positions]
        repeats = float(self.repeat_count)
        new_sum, new_count = float(self.success_sum.sum() - self.repeat_sum), float(counts.sum()) - repeats
        return PositionSummary(
            reward=tuple((self.reward_sum[:num_positions] / counts).tolist()),
            success=tuple((self.success_sum[:num_positions] / counts).tolist()),
            num=tuple(int(count) for count in counts.tolist()),
            context_parse_rate=float(self.parse_sum / self.parse_count),
            num_updates=int(self.parse_count),
            num_lifecycles=int(self.num_lifecycles),
            success_new=new_sum / new_count if repeats and new_count else math.nan,
            success_repeated=float(self.repeat_sum) / repeats if repeats else math.nan,
        )


def by_position(metrics: Mapping[str, Any], prefix: str) -> list[float]:
    """The logged values `{prefix}0`, `{prefix}1`, ... as far as they go without a gap.

    >>> by_position({"val/success/position_0": 0.5, "val/success/position_2": 1.0}, "val/success/position_")
    [0.5]
    """
    values: list[float] = []
    while (name := f"{prefix}{len(values)}") in metrics:
        values.append(float(metrics[name]))
    return values
