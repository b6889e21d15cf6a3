"""The rows of a suite's table: who is shown, in which order, by which name, and who is folded away."""

from collections.abc import Iterator
from dataclasses import dataclass

from cod_lightning.evaluation.conditions import warm_start_name
from cod_lightning.evaluation.controls import Control
from cod_lightning.evaluation.schema import PositionRecord, SuiteRecord

_LABELS = {
    Control.BLANKED_CONTEXT: "context blanked",
    Control.NO_CONTEXT: "no context",
    Control.SHUFFLED_CONTEXT: "another pack's context",
    Control.ORACLE_CONTEXT: "the oracle's context",
    Control.NO_WORLD_MEMORY: "no world memory",
    Control.RANDOM: "random reference",
    Control.MEMORYLESS: "memoryless reference",
    Control.SCRIPTED: "scripted reference",
    Control.ORACLE: "oracle reference",
}
_FOLDED = (Control.RANDOM, Control.MEMORYLESS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One condition of a suite."""

    key: str
    """`trained`, or the key among the controls."""
    label: str
    positions: list[PositionRecord]
    main: bool = True
    """False for rows that a reader needs second."""
    best: bool = False
    """The warm start at its best temperature."""

    @property
    def mean(self) -> float | None:
        """Success in the mean over positions; None where one is missing."""
        present = [p["success"] for p in self.positions if p["success"] is not None]
        return sum(present) / len(present) if len(present) == len(self.positions) else None

    @property
    def gain(self) -> float | None:
        """Success at the last minus the first position."""
        first, last = self.positions[0]["success"], self.positions[-1]["success"]
        return None if first is None or last is None else last - first


def rows(record: SuiteRecord) -> Iterator[Row]:
    """Trained, its controls, warm starts from cold to hot, references, then whatever else there is.

    Warm starts that are neither the best nor at the suite's own temperature are folded, as are the weakest references.
    """
    controls = dict(record["controls"])
    yield Row(key="trained", label=f"trained T={record['temperature']:g}", positions=record["positions"])
    for control in (c for c in _LABELS if not c.is_reference and c in controls):
        yield Row(key=control, label=_LABELS[control], positions=controls.pop(control))
    difference = record["paired"]["trained_minus_best_warm_start"]
    for temperature, key in sorted(_warm_starts(record)):
        best = difference is not None and temperature == difference["best_temperature"]
        label = f"warm start T={temperature:g}{' *' if best else ''}"
        main = best or temperature == record["temperature"]
        yield Row(key=key, label=label, positions=controls.pop(key), main=main, best=best)
    for control in (c for c in _LABELS if c in controls):
        yield Row(key=control, label=_LABELS[control], positions=controls.pop(control), main=control not in _FOLDED)
    for key, positions in controls.items():
        yield Row(key=key, label=key.replace("_", " "), positions=positions)


def shown_positions(pack_size: int) -> list[int]:
    """All positions of a short pack; of a long one the first four, then 7, 15, 31, ... and the last.

    >>> shown_positions(4), shown_positions(16)
    ([0, 1, 2, 3], [0, 1, 2, 3, 7, 15])
    """
    if pack_size <= 8:
        return list(range(pack_size))
    doubling = [2**k - 1 for k in range(3, pack_size.bit_length())]
    return sorted({0, 1, 2, 3, *(n for n in doubling if n < pack_size), pack_size - 1})


def _warm_starts(record: SuiteRecord) -> list[tuple[float, str]]:
    """Temperature and key of every warm-start control."""
    prefix = "warm_start_t"
    own = warm_start_name(record["temperature"], record["temperature"])
    found = [(float(key.removeprefix(prefix)), key) for key in record["controls"] if key.startswith(prefix)]
    return found + [(record["temperature"], own)] * (own in record["controls"])
