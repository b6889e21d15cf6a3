"""The quick start with every rollout waited for and with rollouts ahead, in turn: where it ends, and how long it takes.

    PYTHONPATH=. python examples/studies/asynchronous.py --out docs/results/asynchronous.json [--seeds 1 2 3]

Each run is `python -m cod_lightning fit --config quickstart --torch_threads 1 --seed_everything SEED --data.max_staleness BOUND`
in a process of its own, from a warm start that is there already; with a bound of 1 also `--model.mismatch TokenTruncate`, to
correct for staleness. Which bound is first changes from seed to seed, and all ratios of seconds are within a seed, since other
work on the machine comes and goes; the load is written down.
Exits with 1 where the final success of a seed is not the same within the interval
over packs.
"""

import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scipy.stats import t

from cod_lightning.markdown import table
from examples.studies.memory_page import interval

ROOT = Path(__file__).resolve().parents[2]
BOUNDS = (0, 1)
CORRECTION = {0: (), 1: ("--model.mismatch", "TokenTruncate")}


def fit(folder: Path, cache: Path, seed: int, *more: str) -> float:
    """Seconds of the process."""
    command = [sys.executable, "-m", "cod_lightning", "fit", "--config", "quickstart", "--torch_threads", "1"]
    command += ["--seed_everything", str(seed), "--trainer.default_root_dir", str(folder), *more]
    environment = os.environ | {"COD_LIGHTNING_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return time.perf_counter() - begun


def measured(folder: Path, wall_s: float) -> dict[str, Any]:
    """One run's seconds, lag and evaluation."""
    with (folder / "metrics.csv").open(newline="") as file:
        updates = [row for row in csv.DictReader(file) if row["tokens/sampled"]]
    firsts = list({row["tokens/sampled"]: row for row in reversed(updates)}.values())

    def total(column: str, rows: list[dict[str, str]]) -> float:
        return sum(float(row[column]) for row in rows)

    stood_s = total("time/wait_s" if "time/wait_s" in updates[0] else "time/rollout_s", firsts)
    suite = json.loads((folder / "evaluation.json").read_text())["suites"]["held_out"]
    seconds = {
        "wall_s": wall_s,
        "rollout_s": total("time/rollout_s", firsts),
        "stood_still_s": stood_s,
        "update_s": total("time/train_s", updates),
        "training_s": stood_s + total("time/train_s", updates),
    }
    return {
        **{name: round(value, 1) for name, value in seconds.items()},
        "load": [round(value, 1) for value in os.getloadavg()],
        "updates": len(updates),
        "sampled_tokens": float(updates[-1]["tokens/sampled"]),
        "mean_staleness": total("train/staleness_mean", updates) / len(updates),
        "positions": [{"success": p["success"], "ci95": p["success_ci95"]} for p in suite["positions"]],
        "packs": suite["packs"],
    }


def compared(runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One seed: ratios of seconds, above 1 where rollouts ahead are faster, and the difference in final success.

    Final success is that of the last position. The interval of a difference of two such shares, each with a half-width of its own,
    is that of independent samples: the root of the sum of their squares.
    """
    waited, ahead = (runs[str(bound)] for bound in BOUNDS)
    final = [run["positions"][-1] for run in (waited, ahead)]
    half = sum(((p["ci95"][1] - p["ci95"][0]) / 2) ** 2 for p in final) ** 0.5
    difference = final[1]["success"] - final[0]["success"]
    return {
        "speed_up_of_training": waited["training_s"] / ahead["training_s"],
        "speed_up_of_the_whole_run": waited["wall_s"] / ahead["wall_s"],
        "difference_in_final_success": difference,
        "ci95": [difference - half, difference + half],
        "same_within_its_interval": abs(difference) <= half,
    }


def over_seeds(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Means of the seeds' comparisons; the interval of the difference is Student's over seeds, so it knows how trainings vary."""
    differences = [one["difference_in_final_success"] for one in found]
    mean, half = statistics.mean(differences), float("inf")
    if len(found) > 1:
        half = float(t.ppf(0.975, len(found) - 1)) * statistics.stdev(differences) / len(found) ** 0.5
    return {
        "speed_up_of_training": statistics.mean(one["speed_up_of_training"] for one in found),
        "difference_in_final_success": mean,
        "ci95": [mean - half, mean + half] if len(found) > 1 else None,
    }


def page(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = [
        "# Rollouts ahead on the quick start, measured",
        "",
        *ABOUT.strip().format(machine=results["machine"]).splitlines(),
        "",
    ]
    cells = []
    for bound in map(str, BOUNDS):
        runs = [record["runs"][bound] for record in results["seeds"].values()]
        seconds = ("wall_s", "training_s", "stood_still_s", "rollout_s")
        means = [f"{statistics.mean(run[name] for run in runs):.0f}" for name in seconds]
        cells.append([bound, *means, interval([run["positions"][-1]["success"] for run in runs])])
    head = ["bound", "whole run, s", "training, s", "waited, s", "rollouts, s", "success at 3"]
    lines += [table(head, cells), ""]
    if (over := results["over_seeds"])["ci95"]:
        low, high = over["ci95"]
        lines.append(
            f"Training is {over['speed_up_of_training']:.2f} times as fast with rollouts ahead, the mean of seeds; final success, "
            f"less that of bound 0: {over['difference_in_final_success']:+.3f} [{low:+.3f}, {high:+.3f}]."
        )
    ahead = json.loads((Path(__file__).resolve().parents[2] / "docs" / "results" / "ahead.json").read_text())
    waited = [one["step_s"] for one in ahead["runs"]["0"]]
    speeds = {
        bound: statistics.mean(before / one["step_s"] for before, one in zip(waited, of, strict=True))
        for bound, of in ahead["runs"].items()
        if bound != "0"
    }
    times = ", ".join(f"{speed:.2f} with bound {bound}" for bound, speed in speeds.items())
    lines += ["", *AHEAD.strip().format(times=times, update_s=f"{ahead['update_s']:g}").splitlines()]
    return "\n".join([*lines, ""])


ABOUT = """
**Do rollouts that run while training goes on save time, at the same success?** On two cores success is the same, and no time is
saved. Bound 0 waits for each rollout, bound 1 plays one ahead with `--model.mismatch TokenTruncate`.

    PYTHONPATH=. python examples/studies/asynchronous.py --out docs/results/asynchronous.json

{machine}, one thread of torch a run, held-out packs; means of three seeds, with 95 % intervals over
them (Student's t). *Training* is updates and what they waited. Seeds, positions and the machine's load, which differed, are in
[asynchronous.json](asynchronous.json).
"""


AHEAD = """
**Further ahead** (`examples/studies/ahead.py`): where turns take times with a long tail, updates {update_s} s, and neither
shares a device, a step is this many times as fast as with bound 0: {times} ([ahead.json](ahead.json)). Bounds above 1 change
weights in flight.

**Limits**: one environment, a tiny policy.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    args = parser.parse_args()
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    results: dict[str, Any] = {"machine": machine, "seeds": {}}
    with tempfile.TemporaryDirectory() as temporary:
        cache = Path(temporary) / "cache"
        for number, seed in enumerate(args.seeds):
            once = ("--data.suites", "null", "--trainer.max_steps", "1", "--data.val_packs", "1")
            fit(Path(temporary) / f"warm{seed}", cache, seed, *once)
            runs: dict[str, Any] = {}
            for bound in BOUNDS[:: -1 if number % 2 else 1]:
                folder = Path(temporary) / f"run{seed}.{bound}"
                wall_s = fit(folder, cache, seed, "--data.max_staleness", str(bound), *CORRECTION[bound])
                runs[str(bound)] = measured(folder, wall_s)
                print(f"seed {seed}, bound {bound}: {json.dumps(runs[str(bound)])}", flush=True)
            ordered = {str(bound): runs[str(bound)] for bound in BOUNDS}
            results["seeds"][str(seed)] = {"runs": ordered, "compared": compared(ordered)}
            results["over_seeds"] = over_seeds([one["compared"] for one in results["seeds"].values()])
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text(json.dumps(results, indent=1) + "\n")
            args.out.with_suffix(".md").write_text(page(results))
    return 0 if all(seed["compared"]["same_within_its_interval"] for seed in results["seeds"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
