"""What an optimizer update adds up to, over micro-batches and ranks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cod_lightning.objective.losses import LossMetrics
from cod_lightning.objective.mismatch import MismatchSums
from cod_lightning.objective.terms import REFERENCE, LossTerm, TermSums


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
class TermTotals:
    """Sums over the action tokens of an update, by the name under which they are logged."""

    logged: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, term: LossTerm, sums: TermSums) -> "TermTotals":
        """Of one term in one micro-batch; tokens without a score are `NAME_missing`, where there can be any."""
        if term.logged_as is None:
            return cls()
        missing = {f"{name}_missing": float(sums.num_missing) for name in term.needs if name != REFERENCE}
        return cls({term.logged_as: sums.logged} | missing)

    def __add__(self, other: "TermTotals") -> "TermTotals":
        """Of both together."""
        names = [*self.logged, *(name for name in other.logged if name not in self.logged)]
        return TermTotals({name: self.logged.get(name, 0.0) + other.logged.get(name, 0.0) for name in names})


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the micro-batches of an update, on all ranks; None where there was none."""

    metrics: LossMetrics | None
    entropy: float
    """nats"""
    terms: TermTotals = TermTotals()
    mismatch: MismatchSums | None = None

    def __add__(self, other: "Totals") -> "Totals":
        """Of both together."""
        return Totals(
            _added(self.metrics, other.metrics),
            self.entropy + other.entropy,
            self.terms + other.terms,
            _added(self.mismatch, other.mismatch),
        )


def _added(one: Any, other: Any) -> Any:
    """The sum; None counts for nothing."""
    return other if one is None else one if other is None else one + other
