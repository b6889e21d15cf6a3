"""What `evaluation.json` says, as rows to draw and to tabulate; a suite that cannot be read costs only itself."""

import json
import re
from pathlib import Path
from typing import Any

from cod_lightning.evaluation.schema import Figure, PositionRecord, Recovery, SuiteRecord
from cod_lightning.evaluation.wording import CAVEAT, sentences
from cod_lightning.reports.records import number

_LABELS = {
    "blanked_context": ("context", "context hidden"),
    "no_context": ("context", "no context at all"),
    "shuffled_context": ("context", "context of another pack"),
    "oracle_context": ("context", "context of the oracle"),
    "no_world_memory": ("context", "no memory in the world"),
    "random": ("reference", "random play"),
    "memoryless": ("reference", "scripted, context hidden"),
    "scripted": ("reference", "scripted reference"),
    "oracle": ("reference", "oracle"),
}
"""Key among a suite's controls -> kind and label."""
_ORDER = ("trained", "context", "warm_start", "reference", "other")
_WARM_START = re.compile(r"warm_start(?:_t([0-9.]+))?")
_UNREADABLE = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError)


def read_suites(folder: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Suites by name, and what has to be said about them."""
    path = folder / "evaluation.json"
    if not path.exists():
        return {}, ["There is no evaluation.json, so success by position on held-out packs is missing."]
    try:
        records = dict(json.loads(path.read_text(encoding="utf-8"))["suites"])
    except (OSError, RecursionError, *_UNREADABLE) as error:
        return {}, [f"evaluation.json cannot be read ({type(error).__name__}: {error})."]
    suites, notes = {}, []
    for name, record in records.items():
        try:
            suites[str(name)] = _suite(record)
        except _UNREADABLE as error:
            notes.append(f"Suite {name} of evaluation.json was left out ({type(error).__name__}: {error}).")
    return suites, notes


def _suite(record: SuiteRecord) -> dict[str, Any]:
    return {
        "title": f"{int(record['packs']):,} packs of {int(record['pack_size'])} from {record['env']}",
        "rows": _rows(record),
        "sentences": [*_findings(record), CAVEAT],
        **_compared(record),
    }


def _compared(record: SuiteRecord) -> dict[str, Any]:
    """Regret to the oracle and recovery after a change of the rule; None where they were not measured."""
    figures = record.get("figures") or {}
    regret, recovery = figures.get("regret"), figures.get("recovery")
    return {
        "regret": None if regret is None else _points(regret["by_position"]),
        "recovery": None if recovery is None else _recovery(recovery, record),
    }


def _recovery(recovery: Recovery, record: SuiteRecord) -> dict[str, Any]:
    """Success around the change, a row for each condition, and the trained policy's paired differences."""
    rows = [(*_named(key, record), _points(figures)) for key, figures in recovery["rows"].items()]
    return {
        "offsets": [int(offset) for offset in recovery["offsets"]],
        "rows": [{"kind": kind, "label": label, **points} for kind, label, points in rows],
        "differences": _points([recovery["drop"], recovery["regained"]]),
    }


def _points(figures: list[Figure]) -> dict[str, Any]:
    """Means, intervals and the packs behind them, each a list."""
    return {
        "y": [number(figure["mean"]) for figure in figures],
        "ci95": [_interval(figure["ci95"]) for figure in figures],
        "n": [int(figure["n"]) for figure in figures],
    }


def _findings(record: SuiteRecord) -> list[str]:
    """The evaluation's own sentences; none where another version left out what they need."""
    try:
        return sentences(record)
    except _UNREADABLE:
        return ["This file lacks what its findings could be told from; another version wrote it."]


def _rows(record: SuiteRecord) -> list[dict[str, Any]]:
    """Trained, controls of its context, warm starts from cold to hot, the world's references, then any other control."""
    found = [((0, 0.0), _row(*_named("trained", record), record["positions"]))]
    for place, (key, positions) in enumerate(record["controls"].items()):
        kind, label = _named(key, record)
        within = _warmth(key, record) if kind == "warm_start" else float(place)
        found.append(((_ORDER.index(kind), within), _row(kind, label, positions)))
    return [row for _, row in sorted(found, key=lambda one: one[0])]


def _named(key: str, record: SuiteRecord) -> tuple[str, str]:
    """Kind and label of `trained` or of a control."""
    if key == "trained":
        return "trained", f"trained, T={float(record['temperature']):g}"
    if not _WARM_START.fullmatch(key):
        return _LABELS.get(key, ("other", key.replace("_", " ")))
    difference = (record.get("paired") or {}).get("trained_minus_best_warm_start")
    warm, best = _warmth(key, record), None if difference is None else difference["best_temperature"]
    return "warm_start", f"warm start, T={warm:g}{' *' if warm == best else ''}"


def _warmth(key: str, record: SuiteRecord) -> float:
    """Temperature of a warm start; one that names none was played at the suite's own."""
    match = _WARM_START.fullmatch(key)
    return float(match[1]) if match and match[1] else float(record["temperature"])


def _row(kind: str, label: str, positions: list[PositionRecord]) -> dict[str, Any]:
    success = [number(position["success"]) for position in positions]
    known = [value for value in success if value is not None]
    complete = bool(known) and len(known) == len(success)
    first, last = success[0], success[-1]
    return {
        "kind": kind,
        "label": label,
        "success": success,
        "success_ci95": [_interval(position["success_ci95"]) for position in positions],
        "n": [int(position["n"]) for position in positions],
        "mean": sum(known) / len(known) if complete else None,
        "gain": None if first is None or last is None else last - first,
    }


def _interval(bounds: list[float] | None) -> list[float | None] | None:
    return None if bounds is None else [number(bounds[0]), number(bounds[1])]
