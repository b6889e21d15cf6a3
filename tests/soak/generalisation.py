"""Does connecting the dots carry over to domains never trained on? Success in them against the number of kinds trained on.

    PYTHONPATH=. python tests/soak/generalisation.py --out docs/results/generalisation.json [--kinds 1 4 16] [--seeds 1 2 3]

Each cell is `python -m cod_lightning fit --config experiment/invented` on the first so many of the sixteen kinds of `env/invented`,
warm start included, with as many demonstrations and as many rollouts whatever the number of kinds. Cells are kept
under `--runs`: one
that was stopped goes on, a finished one is skipped. `--page_only` trains nothing. What has not run is listed as not measured.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import yaml

from cod_lightning.evaluation.crossed import seed_estimate
from cod_lightning.markdown import table

KINDS = yaml.safe_load(Path("configs/env/invented.yaml").read_text())["init_args"]["kinds"]
SUITES = {
    "own": "new packs",
    "words": "new words",
    "sizes": "new sizes",
    "order": "family order",
    "threshold": "family threshold",
    "offset": "family offset",
}
WARM = ("warm_start_t0.3", "warm_start")
Curve = Sequence[float]
Cells = dict[str, dict[str, dict[str, dict[str, Curve]]]]
"""Number of kinds, updates of the warm start -> seed -> suite -> condition -> success by position."""


def fit(count: int, updates: int, seed: int, runs: Path) -> None:
    """Train and evaluate one cell, from where it was stopped."""
    folder = runs / f"{count}-{updates}-{seed}"
    if (folder / "run" / "evaluation.json").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    env = {"env": {"init_args": {"kinds": KINDS[:count]}}}
    warm, config = folder / "warm_start.yaml", folder / "config.yaml"
    more = {"num_updates": updates, "num_packs": 4 * updates}
    written = {
        warm: {"defaults": ["/warm_start/invented@_global_", "_self_"], "data": env | more},
        config: {
            "defaults": ["/experiment/invented@_global_", "_self_"],
            "warm_start": str(warm),
            "data": env,
        },
    }
    for file, content in written.items():
        file.write_text(yaml.safe_dump(content))
    command = [sys.executable, "-m", "cod_lightning", "fit", "--config", str(config), "--seed_everything", str(seed)]
    command += ["--torch_threads", "1", "--trainer.default_root_dir", str(folder / "run")]
    if (folder / "run" / "checkpoints" / "last.ckpt").is_file():
        command += ["--ckpt_path", "last"]
    subprocess.run(command, check=True)


def measured(runs: Path, counts: Sequence[int], updates: Sequence[int], seeds: Sequence[int]) -> Cells:
    """The curves of every finished cell."""
    found: Cells = {}
    for demonstrated, count in product(updates, counts):
        for seed in seeds:
            file = runs / f"{count}-{demonstrated}-{seed}" / "run" / "evaluation.json"
            if file.is_file():
                suites = json.loads(file.read_text())["suites"]
                found.setdefault(f"{count}, {demonstrated}", {})[str(seed)] = {
                    name: {
                        condition: [point["success"] for point in curve]
                        for condition, curve in {"trained": suite["positions"], **suite["controls"]}.items()
                    }
                    for name, suite in suites.items()
                }
    return found


def gain(curve: Curve) -> float:
    """Success in the tasks after the first, less success in the first."""
    return mean(curve[1:]) - curve[0]


def normalised(curve: Curve) -> float:
    """The gain as a share of what the first task left to gain."""
    return gain(curve) / max(1e-9, 1 - curve[0])


def interval(values: Sequence[float]) -> str:
    """Mean and 95 % interval over seeds; the mean alone of one seed."""
    if not values:
        return "not measured"
    one = seed_estimate(np.array(values))
    return f"{one.mean:.3f}" + (f" [{one.low:.3f}, {one.high:.3f}]" if one.ci95 else " (one seed)")


def page(results: Cells, command: str) -> str:
    """The results as Markdown."""
    lines = ["# Does it carry over? Measured", "", f"`{command}` writes this page.", *ABOUT.strip().splitlines(), ""]

    def over_seeds(seeds: dict[str, Any], suite: str, condition: str, of: Callable[[Curve], float]) -> str:
        return interval([of(one[suite][condition]) for one in seeds.values() if condition in one[suite]])

    for suite, title in SUITES.items():
        rows: list[list[str]] = []
        for count, seeds in results.items():
            for condition in ("trained", "blanked_context", *WARM):
                at = [over_seeds(seeds, suite, condition, lambda curve, n=n: curve[n]) for n in range(4)]
                more = [over_seeds(seeds, suite, condition, one) for one in (gain, normalised)]
                rows.append([count, NAMES[condition], *at, *more])
        head = ["kinds", "policy", "0", "1", "2", "3", "gain", "normalised"]
        lines += [f"## {title.capitalize()}", "", table(head, rows), ""]
    seeds_of = ", ".join(f"{count}: {len(seeds)}" for count, seeds in results.items())
    lines += [f"Seeds by number of kinds: {seeds_of}.", "", "![gain against kinds](generalisation.svg)", ""]
    return "\n".join(lines)


NAMES = {
    "trained": "**trained**",
    "blanked_context": "context blanked",
    "warm_start_t0.3": "warm start, T=0.3",
    "warm_start": "warm start, T=1",
}
ABOUT = """
"""


def plot(results: Cells, file: Path) -> None:
    """Gain against the number of kinds trained on, by what is new; a point a seed, a line through their means."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for suite, title in SUITES.items():
        gains = {int(n): [gain(one[suite]["trained"]) for one in seeds.values()] for n, seeds in results.items()}
        (line,) = axes.plot(list(gains), [mean(values) for values in gains.values()], label=title)
        for count, values in gains.items():
            axes.plot([count] * len(values), values, ".", color=line.get_color())
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set(xscale="log", xlabel="kinds of domains trained on", ylabel="gain in success after the first task")
    axes.set_xticks([int(count) for count in results], list(results))
    axes.legend(fontsize="small")
    figure.savefig(file)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/generalisation"))
    parser.add_argument("--kinds", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--updates", type=int, nargs="+", default=[800, 3200])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--page_only", action="store_true")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if not args.page_only:
        for seed, updates, count in product(args.seeds, args.updates, args.kinds):
            fit(count, updates, seed, args.runs)
    results = measured(args.runs, args.kinds, args.updates, args.seeds)
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(
        page(results, "PYTHONPATH=. python tests/soak/generalisation.py --out docs/results/generalisation.json")
    )
    plot(results, args.out.with_suffix(".svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
