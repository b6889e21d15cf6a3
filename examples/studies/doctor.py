"""What `doctor` names in trainings with planted causes and in healthy ones; writes docs/results/doctor.json and doctor.md.

PYTHONPATH=. python examples/studies/doctor.py --out docs/results [--work FOLDER] [--runs NAME ...]

A training that `--work` holds already is examined again, not run again. Of runs that are not asked for the file's rows stay.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from cod_lightning.commands.doctor import examined
from cod_lightning.reports.curves import first_value, late_mean
from examples.studies.planted_causes import HEALTHY, PLANTED, Planted

PAGE = """# What doctor names

**How often does `doctor` ([guide](../guides/doctor.md)) name what is wrong, and how often what is not?** Figures are in
[doctor.json](doctor.json).

    PYTHONPATH=. python examples/studies/doctor.py --out docs/results

Of {num} planted causes {named} are named first, with {beside} others beside them. Causes named in {runs} healthy runs: {alarms},
and what was seen there is so.

{planted}

{healthy}

A healthy run is a shipped config with eight rollouts, whose mean reward over the last quarter of the updates is at least the first
rollout's, less .05. Limits: tiny policies in compact words, seed 1 alone; thresholds were chosen with these runs in view.
"""


def _trained(one: Planted, folder: Path, work: Path) -> float:
    done = folder.with_name(f"{folder.name}.done")
    if not done.exists():
        begun = time.perf_counter()
        one.run(folder, work)
        done.write_text(f"{time.perf_counter() - begun:.1f}")
    return float(done.read_text())


def _row(name: str, one: Planted, work: Path) -> dict[str, Any]:
    folder = work / name.replace(" ", "_").replace(",", "")
    seconds = _trained(one, folder, work)
    evidence, findings, notes = examined(folder, trust=True)
    rewards = [name for name in evidence.metrics if name.startswith("train/reward/position_")]
    of = evidence.metrics
    gains = [(late_mean(of, name) or 0.0) - (first_value(of, name) or 0.0) for name in rewards]
    gain = sum(gains) / max(1, len(gains))
    row: dict[str, Any] = {"run": name, "config": " ".join([one.config, *one.choices]), "seconds": round(seconds)}
    row |= {"gain": round(gain, 3), "named": [{"cause": of.cause, "seen": of.seen} for of in findings], "notes": notes}
    print(name, [of.cause for of in findings], f"{gain:+.3f}", flush=True)
    return row


def main() -> None:
    """Run all of them, or those that are asked for."""
    causes = {one.cause: one for one in PLANTED}
    sound = {f"healthy {name}": one for name, one in HEALTHY.items()}
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument("--runs", nargs="+", choices=[*causes, *sound], default=[*causes, *sound])
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    file = options.out / "doctor.json"
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"planted": [], "healthy": []}
    rows = {row["run"]: row for of in kept.values() for row in of}
    for name, one in (causes | sound).items():
        if name in options.runs:
            rows[name] = _row(name, one, work)
            found = {key: [rows[n] for n in of if n in rows] for key, of in (("planted", causes), ("healthy", sound))}
            file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            (options.out / "doctor.md").write_text(page(**found), encoding="utf-8")


def page(planted: list[dict[str, Any]], healthy: list[dict[str, Any]]) -> str:
    """The page of these rows."""

    cells = [
        f"| {one['run']} | {'; '.join('named ' * (of['cause'] != one['run']) + of['seen'] for of in one['named'])} |"
        for one in planted
    ]
    sound = [f"{one['run'].removeprefix('healthy ')} ({one['gain']:+.2f})" for one in healthy]
    alarms = [
        f"In {one['run'].removeprefix('healthy ')}: {of['cause']}, {of['seen']}."
        for one in healthy
        for of in one["named"]
    ]
    return PAGE.format(
        planted="\n".join(["| planted | seen |", "| --- | --- |", *cells]),
        healthy=" ".join([f"Healthy, with reward late less first: {'; '.join(sound)}.", *alarms]),
        num=len(planted),
        named=sum(bool(one["named"]) and one["named"][0]["cause"] == one["run"] for one in planted),
        beside=sum(of["cause"] != one["run"] for one in planted for of in one["named"]),
        runs=len(healthy),
        alarms=sum(len(one["named"]) for one in healthy),
    )


if __name__ == "__main__":
    main()
