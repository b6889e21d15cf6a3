"""What an optimizer update adds up to, over micro-batches and ranks."""

from dataclasses import dataclass, field
from typing import Any

from cod_lightning.objective.losses import LossMetrics
from cod_lightning.objective.mismatch import MismatchSums


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """What an optimizer update was made of, on this rank."""

    num_tokens: int
    """Tokens that went through forward and backward, padding excluded."""
    num_rows: int
    num_dropped_rows: int
    """Rows of zero advantage, which need no gradient, and those of filtered packs."""
    num_micro_batches: int
    """Passes forward and backward, the same on every rank; one with fewer of its own goes through empty ones."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the micro-batches of an update, on all ranks; None where there was none."""

    metrics: LossMetrics | None
    entropy: float
    """nats"""
    terms: dict[str, float] = field(default_factory=dict)
    """Sums over action tokens, by the name under which they are logged."""
    mismatch: MismatchSums | None = None

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(
            _added(self.metrics, other.metrics),
            self.entropy + other.entropy,
            added(self.terms, other.terms),
            _added(self.mismatch, other.mismatch),
        )


def added(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    """Sums of both together, by name."""
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in one | other}


def _added(one: Any, other: Any) -> Any:
    """The sum; None counts for nothing."""
    return other if one is None else one if other is None else one + other
