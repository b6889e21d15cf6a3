"""What the README claims of the quick start, run in full: seeds 1, 2 and 3 from an empty cache, held-out mappings, and a machine.

    python examples/studies/quickstart.py --out docs/results/quickstart.json [--seeds 1 2 3] [--runs quickstart mappings machine]

Each run is `python -m cod_lightning fit --config quickstart --seed_everything SEED` in a process of its own, timed from
outside with its warm start. What training adds to transfer is shown of every run, and promised of the vending machine, whose
demonstrations leave most of it to training. Writes what came out, and whether each promise held, to the JSON file, a page and a
figure beside it; exits with 1 if one did not. Runs that were not asked for stay in the JSON as they were.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from cod_lightning.evaluation.crossed import seed_estimate
from cod_lightning.evaluation.view import with_interval
from cod_lightning.markdown import table

ROOT = Path(__file__).resolve().parents[2]
MACHINE = "examples/vending_machine/machine.yaml"
RUNS = {
    "quickstart": ("seed {seed}", "quickstart"),
    "mappings": ("four of 24 mappings held out, seed {seed}", "examples/studies/held_out_mappings.yaml"),
    "machine": ("vending machine, seed {seed}", MACHINE),
}
"""By the word that asks for it, a run's name and its config; of held-out mappings one seed is played."""
STYLES = (
    {"color": "#0969da", "linestyle": "-"},
    {"color": "#bf5700", "linestyle": ":"},
    {"color": "#6e7781", "linestyle": "--"},
    {"color": "#6e7781", "linestyle": (0, (1, 3))},
)


def run(config: str, seed: int, folder: Path, *more: str) -> dict[str, Any]:
    """One training from nothing; its evaluation, seconds and peak memory (MiB)."""
    command = [sys.executable, "-m", "cod_lightning", "fit", "--config", config, "--seed_everything", str(seed), *more]
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "examples" / "vending_machine")))
    environment = os.environ | {"COD_LIGHTNING_CACHE": str(folder / "cache"), "PYTHONPATH": paths}
    begun = time.perf_counter()
    with (folder / "log.txt").open("w") as log:
        child = subprocess.Popen(
            [*command, "--trainer.default_root_dir", str(folder / "run")],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
        )
        _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - begun
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{(folder / 'log.txt').read_text()[-3000:]}")
    evaluation = json.loads((folder / "run" / "evaluation.json").read_text())
    peak = usage.ru_maxrss / 1024
    return {
        "command": " ".join(command[1:]),
        "seconds": round(seconds, 1),
        "peak_mib": round(peak),
        "evaluation": evaluation,
    }


def promises(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each promise of the README for one run: its value, its bound, and whether it held."""
    suite = record["evaluation"]["suites"]["held_out"]
    success = [p["success"] for p in suite["positions"]]
    blanked = [p["success"] for p in suite["controls"]["blanked_context"]]
    difference = suite["paired"]["trained_minus_best_warm_start"]
    checks = {
        "seconds": (record["seconds"], "<=", 180),
        "peak_mib": (record["peak_mib"], "<=", 2048),
        "success at position 3": (success[3], ">=", 0.88),
        "gain from position 0 to 3": (success[3] - success[0], ">=", 0.30),
        "blanked context, largest distance from position 0": (max(abs(b - success[0]) for b in blanked), "<=", 0.06),
        "trained minus best warm start, lower bound": (difference["ci95"][0], ">", 0),
    }
    return checked(checks)


def promises_of_the_machine(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The promises of the vending machine, whose demonstrations leave most to training."""
    suite = record["evaluation"]["suites"]["held_out"]
    adds = suite["figures"]["training_adds"]["difference"]
    checks = {
        "transfer above the warm start's at its best temperature, lower bound": (adds["ci95"][0], ">", 0),
        "trained minus best warm start, lower bound": (
            suite["paired"]["trained_minus_best_warm_start"]["ci95"][0],
            ">",
            0,
        ),
    }
    return checked(checks)


def checked(checks: dict[str, tuple[float, str, float]]) -> dict[str, dict[str, Any]]:
    """Each value with its bound, and whether it held."""
    held = {"<=": lambda a, b: a <= b, ">=": lambda a, b: a >= b, ">": lambda a, b: a > b}
    return {
        name: {"value": round(value, 4), "bound": f"{sign} {bound}", "held": bool(held[sign](value, bound))}
        for name, (value, sign, bound) in checks.items()
    }


def page(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = ["# Quick start, measured", "", *ABOUT.strip().format(machine=results["machine"]).splitlines(), ""]
    groups: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    notes = []
    for name, record in results["runs"].items():
        for suite_name, suite in record["evaluation"]["suites"].items():
            label = _without_seed(name) if suite_name == "held_out" else suite_name.replace("_", " ")
            groups.setdefault(label, []).append((record, suite))
        if broken := [promise for promise, found in record.get("promises", {}).items() if not found["held"]]:
            notes.append(f"- {name}: not as promised: {', '.join(broken)}")
    rows = [
        [label, *_figures(runs), f"{sum(one['seconds'] for one, _ in runs) / len(runs):.0f}"]
        for label, runs in groups.items()
    ]
    adds = [
        [
            label,
            *(_over(_added(runs, one)) for one in TRANSFERS.values()),
        ]
        for label, runs in groups.items()
    ]
    head = [
        "run",
        "trained, at 0",
        "at 3",
        "blanked, at 3",
        "warm start, at 3",
        "trained less it, in the mean",
        "seconds",
    ]
    figure = "![Success by position: it rises for the trained policy, and stays flat with its context hidden](quickstart.svg)"
    lines += [figure, "", table(head, rows), ""]
    if notes:
        lines += [*notes, ""]
    lines += [*ADDS.strip().splitlines(), "", table(["run", *TRANSFERS], adds), ""]
    return "\n".join([*lines, LIMITS.strip(), ""])


Pair = tuple[float, Any]
"""A figure, and its interval over packs."""


def _without_seed(name: str) -> str:
    return name.partition(", seed")[0] if ", seed" in name else "quick start"


def _figures(runs: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    """Of one kind of run: success at the ends, and how much training adds to it."""
    ends: dict[str, list[Pair]] = {}
    less, heats = list[Pair](), set[str]()
    for _, suite in runs:
        difference, controls = suite["paired"]["trained_minus_best_warm_start"], suite["controls"]
        trained, heat = suite["positions"], difference["best_temperature"]
        heats.add(f"{heat:g}")
        start = controls["warm_start" if heat == 1 else f"warm_start_t{heat}"]
        shown = {
            "first": trained[0],
            "last": trained[-1],
            "blanked": controls["blanked_context"][-1],
            "start": start[-1],
        }
        for name, position in shown.items():
            ends.setdefault(name, []).append((position["success"], position["success_ci95"]))
        less.append((difference["mean_difference"], difference["ci95"]))
    *cells, start_cell = (_over(pairs, most=1.0) for pairs in ends.values())
    return [*cells, f"{start_cell}, T={' and '.join(sorted(heats))}", _over(less, "+.3f")]


def _added(runs: Sequence[tuple[dict[str, Any], dict[str, Any]]], what: str) -> list[Pair]:
    """Transfer of each run, or what training adds to it."""
    found = [suite["figures"]["training_adds"][what] for _, suite in runs]
    return [(one["mean"], one["ci95"]) for one in found]


def _over(pairs: Sequence[Pair], form: str = ".3f", most: float = math.inf) -> str:
    """The mean with its interval over seeds, which ends at the most there can be, or one seed's over packs."""
    if len(pairs) == 1:
        return with_interval(*pairs[0], form)
    found = seed_estimate(np.array([mean for mean, _ in pairs]))
    return with_interval(found.mean, (found.low, min(found.high, most)), form)


TRANSFERS = {"trained": "trained", "warm start at its best temperature": "warm_start", "training adds": "difference"}
"""Column -> what an evaluation calls it."""
ADDS = """
*Transfer*, success after the first task less that with the context blanked:
"""
ABOUT = """
**Does success rise with position in packs never seen?** Yes, and it stays flat with the context hidden.

    make quickstart  # seed 1
    python examples/studies/quickstart.py --out docs/results/quickstart.json

On {machine}. Three seeds, 95 % intervals over them; *seen* and *new mappings* are one run that trains without four of the 24
orders, intervals over packs. The warm start is at its best temperature. Each seed, with its interval over packs, other
positions, temperatures, references, commands and promises: [quickstart.json](quickstart.json).
"""
LIMITS = """
**Limits**: what demonstrations contained, and orders never seen: [beside the other results](index.md#what-limits-the-quick-start).
"""
GREY = "#6e7781"
"""Read on white and on black."""


def draw(results: dict[str, Any], file: Path) -> None:
    """Success by position of every seed: trained, with its context hidden, and the warm start at its best and at temperature 1."""
    plt.rcParams.update(
        dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY)
    )
    figure, axes = plt.subplots(figsize=(7.6, 3.4), layout="constrained")
    suites = [
        run["evaluation"]["suites"]["held_out"] for name, run in results["runs"].items() if name.startswith("seed")
    ]
    for number, suite in enumerate(suites):
        controls = suite["controls"]
        shown = {"trained": suite["positions"], "trained, blanked context": controls["blanked_context"]}
        best = suite["paired"]["trained_minus_best_warm_start"]["best_temperature"]
        shown |= {"warm start, at its best": controls["warm_start" if best == 1 else f"warm_start_t{best}"]}
        shown |= {"warm start, temperature 1": controls["warm_start"]}
        for (label, row), style in zip(shown.items(), STYLES, strict=True):
            success = [position["success"] for position in row]
            low, high = zip(*(position["success_ci95"] for position in row), strict=True)
            axes.plot(success, marker="o", markersize=4, label=None if number else label, **style)
            axes.fill_between(range(len(row)), low, high, alpha=0.12, linewidth=0, color=style["color"])
    axes.set(xlabel="position in the pack", ylabel="success", xticks=range(len(suites[0]["positions"])), ylim=(0.35, 1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.55))
    figure.savefig(file, transparent=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    args = parser.parse_args()
    runs: dict[str, Any] = json.loads(args.out.read_text())["runs"] if args.out.exists() else {}
    jobs = [
        (RUNS[one][0].format(seed=seed), RUNS[one][1], seed)
        for one in args.runs
        for seed in (args.seeds[:1] if one == "mappings" else args.seeds)
    ]
    for name, config, seed in jobs:
        with tempfile.TemporaryDirectory() as folder:
            runs[name] = record = run(config, seed, Path(folder))
        if config == "quickstart":
            record["promises"] = promises(record)
        elif config == MACHINE:
            record["promises"] = promises_of_the_machine(record)
        print(name, json.dumps(record.get("promises", record["seconds"]), indent=1), flush=True)
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    results = {"machine": machine, "runs": runs}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(page(results))
    draw(results, args.out.with_suffix(".svg"))
    return 0 if all(p["held"] for r in runs.values() for p in r.get("promises", {}).values()) else 1


if __name__ == "__main__":
    sys.exit(main())
