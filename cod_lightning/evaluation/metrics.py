"""Means by position that stay right over batches and ranks: sums and counts are added up, then divided once."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torchmetrics import Metric

from cod_lightning.types import Lifecycle

_MOST_POSITIONS = 10_000
"""Of a lifecycle; states that are summed over ranks have a fixed size."""


class PositionMetrics(Metric):
    """Reward, success and context parses by position, weighted by lifecycles."""

    full_state_update = False
    is_differentiable = False
    solves: Float[Tensor, "M 3"]
    """By position: sums of rewards and of successes, number of solve episodes."""
    totals: Float[Tensor, "5"]
    """Contexts that parsed, updates; tasks solved of those that were asked again, those; lifecycles."""
    num_positions: Float[Tensor, ""]

    def __init__(self) -> None:
        super().__init__()
        for name, shape, over_ranks in (
            ("solves", (_MOST_POSITIONS, 3), "sum"),
            ("totals", (5,), "sum"),
            ("num_positions", (), "max"),
        ):
            self.add_state(name, torch.zeros(shape, dtype=torch.float64), dist_reduce_fx=over_ranks)

    def update(self, lifecycles: Sequence[Lifecycle]) -> None:
        """Count these lifecycles; episodes without a reward are left out."""
        longest = max((len(lifecycle.solves) for lifecycle in lifecycles), default=0)
        if longest > _MOST_POSITIONS:
            raise ValueError(f"a lifecycle of {longest:,} tasks; there is room for {_MOST_POSITIONS:,}")
        sums = [[0.0, 0.0, 0.0] for _ in range(longest)]
        for solve in (solve for life in lifecycles for solve in life.solves):
            if solve.reward is not None:
                own = (solve.reward, float(bool(solve.success)), 1.0)
                sums[solve.position] = [total + value for total, value in zip(sums[solve.position], own, strict=True)]
        parsed = [e.success for lifecycle in lifecycles for e in lifecycle.updates if e.success is not None]
        repeated = [e.success for life in lifecycles for e in life.solves if e.repeat and e.success is not None]
        totals = [sum(parsed), len(parsed), sum(repeated), len(repeated), len(lifecycles)]
        self.solves[:longest] += torch.tensor(sums, dtype=torch.float64, device=self.solves.device).reshape(-1, 3)
        self.totals += torch.tensor(totals, dtype=torch.float64, device=self.totals.device)
        self.num_positions = self.num_positions.clamp_min(longest)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> "PositionMetrics":
        """Follows moves to a device, no casts: `trainer.precision=bf16-true` would stop counting at 256."""
        return super()._apply(lambda state: state.to(fn(state).device), exclude_state)  # pyright: ignore

    def compute(self) -> dict[str, float]:
        """The means over all lifecycles of all ranks by their names in logs, without the stage; those of nothing are left out.

        `reward/position_K` and `success/position_K` of solve episodes, `num/position_K` of them, `cod_gain` (success at the last
        minus the first position), `context_parse_rate` of updates, `lifecycles`, those that failed included, and, where packs ask
        for the same again, `success/repeated` and, of tasks that are unlike all earlier ones of their pack, `success/new`.
        """
        rewards, successes, counts = self.solves[: int(self.num_positions)].T
        parsed, updates, solved_again, repeats, lifecycles = self.totals.tolist()
        success = (successes / counts).tolist()
        columns = {"reward": (rewards / counts).tolist(), "success": success, "num": counts.tolist()}
        named = {f"{name}/position_{n}": value for name, values in columns.items() for n, value in enumerate(values)}
        named["cod_gain"] = success[-1] - success[0] if success else math.nan
        named["context_parse_rate"] = parsed / updates if updates else math.nan
        named["lifecycles"] = lifecycles
        if repeats:
            named["success/repeated"] = solved_again / repeats
            if others := float(counts.sum()) - repeats:
                named["success/new"] = (float(successes.sum()) - solved_again) / others
        return {name: value for name, value in named.items() if not math.isnan(value)}


def by_position(metrics: Mapping[str, Any], prefix: str) -> list[float]:
    """The logged values `{prefix}0`, `{prefix}1`, ... as far as they go without a gap.

    >>> by_position({"val/success/position_0": 0.5, "val/success/position_2": 1.0}, "val/success/position_")
    [0.5]
    """
    values: list[float] = []
    while (name := f"{prefix}{len(values)}") in metrics:
        values.append(float(metrics[name]))
    return values
