"""A suite's results as rows: the one view that the terminal's table, the report and the model card read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cod_lightning.evaluation.controls import CONTROLS, ByEndpoint, WarmStartBlanked
from cod_lightning.evaluation.schema import Figure, Interval, PositionRecord, SuiteRecord

_KNOWN = {one.name: one for one in (ByEndpoint, *CONTROLS.values(), WarmStartBlanked)}
_PARTS = {"trained": "context", "warm_start": "warm_start", "none": "reference"}
WARM_START = re.compile(r"warm_start(?:_t(\d+(?:\.\d+)?(?:e[+-]?\d+)?))?", re.ASCII)
"""Key of a warm start among a suite's controls, and its temperature."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One condition of a suite."""

    key: str
    """`trained`, whatever its label, or the key among the controls."""
    kind: str
    """trained, context, warm_start, reference or other."""
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
        return sum(present) / len(present) if 0 < len(present) == len(self.positions) else None

    @property
    def malformed(self) -> float | None:
        """Share of answers that did not parse, in the mean over positions; None where it was not recorded."""
        known = [share for p in self.positions if (share := p.get("malformed")) is not None]
        return sum(known) / len(known) if known else None

    @property
    def gain(self) -> float | None:
        """Success at the last minus the first position."""
        ends = (self.positions[0]["success"], self.positions[-1]["success"]) if self.positions else (None, None)
        return None if ends[0] is None or ends[1] is None else ends[1] - ends[0]


def rows(record: SuiteRecord) -> list[Row]:
    """Trained, its controls, warm starts from cold to hot, references, then whatever else there is.

    Warm starts that are neither the best nor at the suite's own temperature are folded, as are the weakest references.
    """
    order = ("trained", "context", "warm_start", "reference", "other")
    places = {key: place for place, key in enumerate(_KNOWN)}
    found: list[tuple[tuple[int, float], Row]] = []
    for key, positions in {"trained": record["positions"], **record["controls"]}.items():
        row, within = _row(key, positions, record), float(places.get(key, 0))
        found.append(((order.index(row.kind), _warmth(key, record) if row.kind == "warm_start" else within), row))
    return [row for _, row in sorted(found, key=lambda one: one[0])]


def _row(key: str, positions: list[PositionRecord], record: SuiteRecord) -> Row:
    if key == "trained":
        heat = f"T={record['temperature']:g}"
        return Row(key=key, kind=key, label=f"{record.get('policy', 'trained')} {heat}", positions=positions)
    if WARM_START.fullmatch(key):
        difference = (record.get("paired") or {}).get("trained_minus_best_warm_start")
        warm = _warmth(key, record)
        best = difference is not None and warm == difference["best_temperature"]
        heat, main = f"T={warm:g}{' *' if best else ''}", best or warm == record["temperature"]
        label = f"warm start {heat}"
        return Row(key=key, kind="warm_start", label=label, positions=positions, main=main, best=best)
    label = key.replace("_", " ")
    if (known := _KNOWN.get(key)) is None:
        return Row(key=key, kind="other", label=label, positions=positions)
    return Row(key=key, kind=_PARTS[known.weights], label=known.label or label, positions=positions, main=known.main)


def _warmth(key: str, record: SuiteRecord) -> float:
    """Temperature of a warm start; one that names none was played at the suite's own."""
    match = WARM_START.fullmatch(key)
    return float(match[1]) if match and match[1] else record["temperature"]


def packs_of(record: Mapping[str, Any]) -> str:
    """How many packs a record's suite has, and how many different things they hide, where that is fewer.

    >>> packs_of({"packs": 16, "rules": 1}), packs_of({"packs": 1024, "rules": 1024})
    ('16 packs (1 hidden rule)', '1,024 packs')
    """
    packs, rules = record["packs"], record.get("rules")
    hidden = "" if rules in (None, packs) else f" ({rules:,} hidden rule{'' if rules == 1 else 's'})"
    return f"{packs:,} packs{hidden}"


def shown_positions(pack_size: int) -> list[int]:
    """All positions of a short pack; of a long one the first four, then 7, 15, 31, ... and the last.

    >>> shown_positions(4), shown_positions(16)
    ([0, 1, 2, 3], [0, 1, 2, 3, 7, 15])
    """
    if pack_size <= 8:
        return list(range(pack_size))
    doubling = [2**k - 1 for k in range(3, pack_size.bit_length())]
    return sorted({0, 1, 2, 3, *(n for n in doubling if n < pack_size), pack_size - 1})


def figure(of: Figure | None, form: str = ".3f") -> str:
    """A mean with its interval, a dash where it is missing."""
    return "-" if of is None else with_interval(of["mean"], of["ci95"], form)


def with_interval(mean: float | None, ci95: Interval, form: str = ".3f") -> str:
    """A number with its interval in brackets, if it has one; a dash where it is missing.

    >>> with_interval(0.5, [0.4, 0.6], "+.2f"), with_interval(None, None)
    ('+0.50 [+0.40, +0.60]', '-')
    """
    if mean is None:
        return "-"
    return f"{mean:{form}}" + ("" if ci95 is None else f" [{ci95[0]:{form}}, {ci95[1]:{form}}]")
