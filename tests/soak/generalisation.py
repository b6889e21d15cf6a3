"""Does connecting the dots carry over to domains never trained on? Success in them against the number of kinds trained on.

    PYTHONPATH=. python tests/soak/generalisation.py --out docs/results/generalisation.json [--kinds 1 4 16] [--seeds 1 2 3]

Each cell is `python -m cod_lightning fit --config experiment/invented` on the first so many of the sixteen kinds of `env/invented`,
warm start included, with as many demonstrations and as many rollouts whatever the number of kinds. Cells are kept under `--runs`:
one that was stopped goes on, a finished one is skipped. `--page_only` trains nothing. What has not run is listed as not measured.
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
    "own": "new packs of the kinds trained on",
    "words": "the same kinds in new words",
    "sixteen": "all sixteen kinds in new words",
    "sizes": "new sizes in new words",
    "order": "family order in new words",
    "threshold": "family threshold in new words",
    "offset": "family offset in new words",
}
NAMES = {
    "trained": "**trained**",
    "blanked_context": "context blanked",
    "warm_start_t0.3": "warm start, T=0.3",
    "warm_start": "warm start, T=1",
    "scripted": "scripted player",
}
Curve = Sequence[float]
Cells = dict[str, dict[str, dict[str, dict[str, Curve]]]]
"""Number of kinds -> seed -> suite -> condition -> success by position."""


def fit(count: int, seed: int, runs: Path) -> None:
    """Train and evaluate one cell, from where it was stopped."""
    folder = runs / f"{count}-{seed}"
    if (folder / "run" / "evaluation.json").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    env = {"env": {"init_args": {"kinds": KINDS[:count]}}}
    warm, config = folder / "warm_start.yaml", folder / "config.yaml"
    written = {
        warm: {"defaults": ["/warm_start/invented@_global_", "_self_"], "data": env},
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


def measured(runs: Path, counts: Sequence[int], seeds: Sequence[int]) -> Cells:
    """The curves of every finished cell."""
    found: Cells = {}
    for count, seed in product(counts, seeds):
        file = runs / f"{count}-{seed}" / "run" / "evaluation.json"
        if file.is_file():
            suites = json.loads(file.read_text())["suites"]
            found.setdefault(str(count), {})[str(seed)] = {
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
            for condition in NAMES:
                at = [over_seeds(seeds, suite, condition, lambda curve, n=n: curve[n]) for n in range(4)]
                more = [over_seeds(seeds, suite, condition, one) for one in (gain, normalised)]
                rows.append([count, NAMES[condition], *at, *more])
        head = ["kinds", "policy", "0", "1", "2", "3", "gain", "normalised"]
        lines += [f"## {title.capitalize()}", "", table(head, rows), ""]
    seeds_of = ", ".join(f"{count}: {len(seeds)}" for count, seeds in results.items())
    lines += [
        f"Seeds by number of kinds: {seeds_of}.",
        "",
        *SEEN.strip().splitlines(),
        "",
        "![success by position](generalisation.svg)",
        "",
    ]
    return "\n".join(lines)


ABOUT = """
The rows say on how many of the sixteen kinds of `env/invented` a policy was trained, and with how many updates of its warm start.
Each was warm-started on four demonstrated packs an update, then trained in six rollouts of 128 lifecycles; it has 0.76 million
parameters, 0.49 million of them trained. Nothing is trained on what a section names. *Gain* is success in tasks 1 to 3 less that
in task 0, *normalised* its share of what task 0 left to gain. 96 packs of 4; intervals are over seeds.
"""
SEEN = """
## What it shows so far

**No carry-over is shown, and no gain in the kinds trained on either.** One cell is finished (16 kinds, 800 updates, seed 1).
Where success rises with position, it rises as much with the context hidden. In five of six suites it solves measurably less at T=1
than its warm start at T=0.3, and in the sixth (order) no difference shows. One cell cannot say how gain depends on the number
of kinds.

What it lacks comes before carry-over. In six of its lifecycles that were read, first contexts of the warm start at T=0.3 are often
right (`late tavux gomag tumok` becomes `tavux gomag tumok`), later ones repeat a fact until the tokens run out and are refused, and
after `bulid milag tigod` it answers `bulid memak tigod`, a result that its own context denies. The trained policy at T=1 also notes
names that it was never shown. Too few demonstrations are the first suspect: the loss of the last update was 0.66 nats a token, and
0.17 for a warm start on one kind. This is not tested yet; `--updates 3200` is for that.

Not measured: 1, 2, 4 and 8 kinds; 3,200 updates; further seeds; other sizes of the policy; conjunctions; episode against trajectory
credit; uninformative writers; a curriculum; families crossed, one trained on and another tested on; sentences.
"""


def plot(results: Cells, file: Path) -> None:
    """Gain against the number of kinds trained on, in every suite; means over seeds with 95 % intervals, and every seed."""
    figure, every = plt.subplots(2, 4, figsize=(12, 5.5), sharex=True, sharey=True, layout="constrained")
    shown = ("trained", "blanked_context", "warm_start_t0.3", "scripted")
    for axes, (suite, title) in zip(every.flat, SUITES.items(), strict=False):
        for i, condition in enumerate(shown):
            gains = {
                int(count): np.array([gain(one[suite][condition]) for one in seeds.values()])
                for count, seeds in results.items()
            }
            at = np.array(list(gains)) * 2 ** (0.08 * (i - 1.5))
            estimates = [seed_estimate(values) for values in gains.values()]
            spans = [(one.mean - one.low, one.high - one.mean) if one.ci95 else (0.0, 0.0) for one in estimates]
            axes.errorbar(
                at,
                [one.mean for one in estimates],
                yerr=np.array(spans).T,
                marker="o",
                capsize=3,
                linestyle=":" if condition == "scripted" else "-",
                label=NAMES[condition].strip("*"),
                color=f"C{i}",
            )
            for x, values in zip(at, gains.values(), strict=True):
                axes.plot([x] * len(values), values, ".", color=f"C{i}", alpha=0.5)
        axes.axhline(0, color="grey", linewidth=0.5)
        axes.set_xscale("log", base=2)
        axes.set(title=title, xticks=list(map(int, results)), xticklabels=list(results))
    every[1, 3].axis("off")
    every[1, 3].legend(*every[0, 0].get_legend_handles_labels(), loc="center")
    figure.supxlabel("kinds trained on")
    figure.supylabel("success in tasks 1 to 3 less success in task 0")
    figure.savefig(file)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/generalisation"))
    parser.add_argument("--kinds", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--page_only", action="store_true")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if not args.page_only:
        for seed, count in product(args.seeds, args.kinds):
            fit(count, seed, args.runs)
    results = measured(args.runs, args.kinds, args.seeds)
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(
        page(results, "PYTHONPATH=. python tests/soak/generalisation.py --out docs/results/generalisation.json")
    )
    plot(results, args.out.with_suffix(".svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
