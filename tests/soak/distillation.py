"""On-policy distillation on the levers: students of one teacher against ordinary training, at equal rollouts, over seeds.

    PYTHONPATH=. python tests/soak/distillation.py --out docs/results/distillation.json [--seeds 1 2 3]

The teacher is `--config smoke` of seed 100 with three times the epochs. Each student starts from its own warm start and trains
for the rollouts of `--config smoke`: by reward alone, by reverse KL to the teacher alone (the environment's reward weighs nothing),
and by both. Success by position is that of held-out packs at temperature 1, with 95 % intervals over seeds (Student's t).
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from cod_lightning.evaluation.crossed import seed_estimate

METHODS: dict[str, list[str]] = {
    "reward": ["--config", "smoke"],
    "teacher": ["--config", "experiment/distill_levers"],
    "reward and teacher": ["--config", "experiment/distill_levers", "--data.rewards.world.init_args.weight", "1.0"],
}
POSITIONS = range(4)


def command(*arguments: str, cache: Path) -> None:
    """Run `python -m cod_lightning` with these arguments; end with its output where it fails."""
    env = os.environ | {"COD_LIGHTNING_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "cod_lightning", *arguments], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")


def success(run: Path, condition: str) -> list[float]:
    """Mean success by position in the suite of the run."""
    suite = json.loads((run / "evaluation.json").read_text())["suites"]["held_out"]
    return [one["success"] for one in (suite["positions"] if condition == "trained" else suite["controls"][condition])]


def interval(values: list[float]) -> dict[str, float]:
    """Mean and 95 % interval over seeds; without one where there is a single seed."""
    one = seed_estimate(np.array(values))
    found = {"mean": one.mean, "low": one.low, "high": one.high} if one.ci95 else {"mean": one.mean}
    return {name: round(value, 4) for name, value in found.items()}


def table(rows: dict[str, list[list[float]]]) -> dict[str, Any]:
    """By method and position, over seeds."""
    return {name: [interval([seed[n] for seed in of]) for n in POSITIONS] for name, of in rows.items()}


def main() -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="distillation_"))
    cache, teacher = root / "cache", root / "teacher"
    taught = [
        "--seed_everything",
        "100",
        "--trainer.max_epochs",
        "9",
        "--trainer.default_root_dir",
        str(root / "taught"),
    ]
    command("fit", "--config", "smoke", *taught, cache=cache)
    last = str(root / "taught" / "checkpoints" / "last.ckpt")
    command("export", "--ckpt_path", last, "--out", str(teacher), cache=cache)
    rows: dict[str, list[list[float]]] = {"warm start": [], **{name: [] for name in METHODS}}
    for seed in options.seeds:
        for name, arguments in METHODS.items():
            run = root / f"{name.replace(' ', '_')}_{seed}"
            own = ["--seed_everything", str(seed), "--trainer.default_root_dir", str(run)]
            if name != "reward":
                own += ["--model.scorers.teacher.init_args.path", str(teacher)]
            command("fit", *arguments, *own, cache=cache)
            rows[name].append(success(run, "trained"))
            if name == "reward":
                rows["warm start"].append(success(run, "warm_start"))
            print(seed, name, rows[name][-1], flush=True)
    found = {
        "seeds": options.seeds,
        "python": platform.python_version(),
        "teacher": [round(one, 4) for one in success(root / "taught", "trained")],
        "success": table(rows),
        "by_seed": rows,
    }
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
