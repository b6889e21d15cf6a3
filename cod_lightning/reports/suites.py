"""The suites of `evaluation.json` as rows to draw and to tabulate; an unreadable suite leaves the others readable."""

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cod_lightning.evaluation.view import packs_of, rows
from cod_lightning.evaluation.wording import CAVEAT, sentences
from cod_lightning.reports.records import number

UNREADABLE = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)
"""What a damaged record raises."""
STALE = "By the files' times, evaluation.json is older than {}: its numbers are those of earlier weights."


def read_evaluation(folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]], list[str]]:
    """Records of evaluation.json as they are, by suite, and by checkpoint and suite; and a note where it cannot be read."""
    path = folder / "evaluation.json"
    if not path.is_file():
        return {}, {}, ["There is no evaluation.json, so success by position on held-out packs is missing."]
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return dict(content["suites"]), {at: dict(of) for at, of in content.get("checkpoints", {}).items()}, []
    except (OSError, *UNREADABLE) as error:
        return {}, {}, [f"evaluation.json cannot be read ({type(error).__name__}: {error})."]


def read_suites(folder: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Suites by name, those of several checkpoints (`test --ckpt_path [A,B]`) by name and checkpoint, and notes for the reader."""
    records, by_checkpoint, notes = read_evaluation(folder)
    for place, (at, of_checkpoint) in enumerate(by_checkpoint.items(), start=1):
        records |= {f"{name}, {place}: {_tail(at)}": record for name, record in of_checkpoint.items()}
    suites: dict[str, dict[str, Any]] = {}
    for name, record in records.items():
        try:
            suites[str(name)] = _suite(record)
        except UNREADABLE as error:
            notes.append(f"Suite {name} of evaluation.json was left out ({type(error).__name__}: {error}).")
    return suites, notes


def run_names(folders: list[Path]) -> list[str]:
    """The folders' own names; more of the path where two are alike.

    >>> run_names([Path("/a/runs/smoke"), Path("/b/runs/smoke")]), run_names([Path("runs/smoke")])
    (['a/runs/smoke', 'b/runs/smoke'], ['smoke'])
    """
    parts = [folder.resolve().parts for folder in folders]
    for length in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{'/'.join(part[-1:])} ({index})" for index, part in enumerate(parts, start=1)]


def _suite(record: Any) -> dict[str, Any]:
    recovery = (record.get("figures") or {}).get("recovery") or {"offsets": [], "rows": {}}
    offsets = array("i", map(int, recovery["offsets"]))  # of 32 bits, as positions are, and axes can be drawn
    return {
        "title": f"{packs_of(record)} of {int(record['pack_size'])} from {record['env']}"
        + (f", by {_tail(tested)}" if (tested := record.get("checkpoint")) else ""),
        "rows": [
            {
                "kind": row.kind,
                "label": row.label,
                "success": _curve(range(len(row.positions)), row.positions, "success", "success_ci95"),
                "recovery": _curve(offsets, found, "mean", "ci95")
                if (found := recovery["rows"].get(row.key))
                else None,
                "mean": number(row.mean),
                "gain": number(row.gain),
            }
            for row in rows(record)
        ],
        "sentences": [*sentences(record), CAVEAT],
    }


def _tail(checkpoint: object) -> str:
    """The end of its path: its run's folder and its name."""
    return "/".join(Path(str(checkpoint)).parts[-3:])


def _curve(x: Iterable[int], points: Sequence[Mapping[str, Any]], mean: str, ci95: str) -> dict[str, Any]:
    """As a `Line` has it: means, intervals and the packs behind them, with five digits of every fraction."""
    bounds = [None if point[ci95] is None else [number(end) for end in point[ci95]] for point in points]
    return {
        "x": [at for at, _ in zip(x, points, strict=True)],
        "y": [number(point[mean]) for point in points],
        "ci95": [None if of is None or None in of else (of[0], of[1]) for of in bounds],
        "n": [int(point["n"]) for point in points],
    }
