"""Faults of weight syncs, planted in every precision, and clean syncs; writes docs/results/syncs.json and syncs.md.

PYTHONPATH=. python examples/studies/syncs.py --out docs/results [--precisions NF4]

Of the precisions that are not named the file's rows stay.
"""

import argparse
import itertools
import json
import warnings
from pathlib import Path
from typing import Any

from examples.studies.planted_syncs import FAULTS, PRECISIONS, SOUND, SOUND_MERGED, Run

NUM_CLEAN = 100
RATES = (1e-3, 1e-6)

PAGE = """# Weight syncs

**Which faults of a weight sync stop a run, and when?** A fault is planted from the second sync on, in each precision; a cell
says what was first to name it at that sync: **d**igests of the engine's own tensors, or what it samples (**p**robes against an
earlier sync, or log-probs beside the training forward's, as in the **s**elf-test); **r**: the engine refuses what arrives; `.`:
nothing did. The first letter is with the digests, the second for an engine that is known by its samples alone.

    PYTHONPATH=. python examples/studies/syncs.py --out docs/results

{table}

With digests {named} of {total} planted faults stop the run by the second sync; by samples alone {blind}. Clean: {clean} syncs at
learning rates 1e-3 and 1e-6, {alarms} false alarms.

**Limits.** Tiny models of two layers on a CPU, at a rate of 1e-3. In less than float32 samples alone do not show a fault that is
smaller than the engine's rounding: small parts of a model, or adapters a few updates old.
"""


def main() -> None:
    """Run all of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    for precision in options.precisions:
        rows = {"faults": faults(precision), "clean": clean(precision)}
        file = options.out / "syncs.json"
        kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        for key, own in rows.items():
            rows[key] = [one for one in kept.get(key, []) if one["precision"] != precision] + own
        write(options.out, {key: sorted(of, key=_place) for key, of in rows.items()})


def faults(precision: str) -> list[dict[str, Any]]:
    """At which sync each fault stopped a run, with the engine's tensors seen and by its samples alone, and what was said."""
    rows: list[dict[str, Any]] = []
    for fault in (one for one in FAULTS if precision in one.of):
        found: dict[str, Any] = {"fault": fault.name, "source": fault.source, "precision": precision}
        for key, seen in (("digests", True), ("samples", False)):
            at, said = Run(precision, fault, seen_through=seen)(3)
            found[key] = {
                "stopped_at": at or None,
                "by": _by(said),
                "said": said.replace("Planted", "the engine")[:300],
            }
        print(precision, fault.name, {key: found[key]["stopped_at"] for key in ("digests", "samples")}, flush=True)
        rows.append(found)
    return rows


def clean(precision: str) -> list[dict[str, Any]]:
    """Alarms in syncs without a fault, of NF4 also where the engine serves it in full."""
    rows: list[dict[str, Any]] = []
    for fault, rate in itertools.product([SOUND, SOUND_MERGED][: 1 + (precision == "NF4")], RATES):
        at, said = Run(precision, fault, lr=rate)(NUM_CLEAN)
        row = {"precision": precision, "merged": fault.merged, "lr": rate, "syncs": NUM_CLEAN}
        rows.append(row | {"alarm": said, "at": at or None})
        print("clean", precision, rate, at, flush=True)
    return rows


def _place(row: dict[str, Any]) -> tuple[int, int]:
    """By precision, then as the faults are listed."""
    names = [fault.name for fault in FAULTS]
    return PRECISIONS.index(row["precision"]), names.index(row["fault"]) if "fault" in row else 0


def _by(said: str) -> str:
    if not said:
        return "."
    if said.startswith("weight sync"):
        return "r"
    return "d" if "does not hold" in said else "s" if "does not sample" in said else "p"


def write(folder: Path, content: dict[str, Any]) -> None:
    """The two files."""
    (folder / "syncs.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    (folder / "syncs.md").write_text(page(content), encoding="utf-8")


def page(content: dict[str, Any]) -> str:
    """The page of these rows."""
    by_fault: dict[tuple[str, str], dict[str, str]] = {}
    counts = {"digests": 0, "samples": 0}
    for one in content["faults"]:
        cell = "".join(one[key]["by"] if one[key]["stopped_at"] == 2 else "." for key in counts)
        by_fault.setdefault((one["fault"], one["source"]), {})[one["precision"]] = cell
        for key in counts:
            counts[key] += one[key]["stopped_at"] == 2
    rows = [
        f"| {fault}{'' if source == 'own' else f' ({source})'} | "
        + " | ".join(of.get(p, "") for p in PRECISIONS)
        + " |"
        for (fault, source), of in by_fault.items()
    ]
    head = ["| planted (as in) | " + " | ".join(PRECISIONS) + " |", "| --- " * (1 + len(PRECISIONS)) + "|"]
    return PAGE.format(
        table="\n".join([*head, *rows]),
        named=counts["digests"],
        total=len(content["faults"]),
        blind=counts["samples"],
        clean=f"{sum(one['syncs'] for one in content['clean']):,}",
        alarms=sum(bool(one["at"]) for one in content["clean"]),
    )


if __name__ == "__main__":
    main()
