"""Is the habit of taking notes, strengthened by training in some kinds of domains, there in others?

    PYTHONPATH=. python examples/studies/habit.py --out docs/results/habit.json [--kinds 1 2 4 8 16]
        [--variants 1-trajectory ...] [--seeds 1 2 3] [--page_only]

Every cell begins with one warm start, on demonstrations of all sixteen kinds of `env/invented` in which two facts in five are
noted rightly, and is trained by reinforcement learning on the first so many of them (`fit --config
examples/studies/invented_weak_notes.yaml`). Cells are kept under `--runs`: one that was stopped goes on, a finished one is
skipped; cells that the folder lacks stay in the JSON as they were.
"""

import argparse
import csv
import json
import os
import sys
from collections.abc import Sequence
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from jaxtyping import Float

from cod_lightning.envs.invented.wording import CompactInvented
from cod_lightning.markdown import table
from examples.studies.generalisation import (
    PLAYED,
    SUITES,
    Cells,
    Variant,
    cell,
    interval,
    kept,
    lives,
    measured,
    over_seeds,
    plot,
    read,
    written,
)

EXPERIMENT, DEMONSTRATED = "examples/studies/invented_weak_notes.yaml", 16
VARIANTS = {
    "1-trajectory": Variant(
        1, ("credit=TrajectoryCredit",), about="credits every episode with the sum of its lifecycle's task rewards"
    ),
    "16-bandit": Variant(16, ("source=Bandit",), about="draws its packs by a bandit over the sixteen kinds"),
    "1-small": Variant(
        1,
        sizes={"hidden_size": 64, "intermediate_size": 64},
        about="has a policy of 0.22 million parameters with a warm start of its own",
    ),
    "1-large": Variant(
        1,
        sizes={"hidden_size": 256, "intermediate_size": 256},
        about="has a policy of 1.91 million parameters with a warm start of its own",
    ),
    "1-uninformative": Variant(
        1,
        only="graph-5-2",
        teacher={"note_accuracy": 0.0},
        about="begins with demonstrations whose notes are random, and trains on graphs (`graph-5-2`) alone",
    ),
}
"""One thing otherwise than in the cell with as many kinds."""
FAMILIES = "order", "threshold", "offset"
COMMAND = "PYTHONPATH=. python examples/studies/habit.py --out docs/results/habit.json"
Noted = dict[str, dict[str, dict[str, dict[str, float]]]]
"""Name of a cell -> seed -> suite -> condition -> share of shown facts that the next context has."""

Sampled = dict[str, dict[str, int]]
"""Name of a cell -> seed -> tokens that training sampled."""


def noted(file: Path) -> float:
    """Of the facts that feedback showed and the context lacked, the share that the next context has."""
    parse = CompactInvented().parse
    shown = kept = 0
    for line in file.read_text().splitlines():
        for solve, update in pairwise(json.loads(line)["episodes"]):
            if (solve["kind"], update["kind"]) != ("solve", "update"):
                continue
            new = set(parse(solve["feedback"])) - set(parse(solve["context_before"]))
            shown += len(new)
            kept += len(new & set(parse(update["context_after"])))
    return kept / shown if shown else float("nan")


def all_noted(runs: Path, names: Sequence[str], seeds: Sequence[int]) -> Noted:
    """Of every cell that is there, for the warm start at T=0.3 and at T=1 and the trained policy."""
    found: Noted = {}
    writers = (("warm", "warm"), ("warm", "warm_hot"), ("run", "trained"))
    files = {name: (folder, PLAYED[folder][name]) for folder, name in writers}
    for name_of, seed, suite in product(names, seeds, SUITES):
        for name, (folder, key) in files.items():
            file = runs / f"{name_of}-{seed}" / folder / "lifecycles" / f"test_{suite}_{key}.jsonl"
            if file.is_file():
                of = found.setdefault(name_of, {}).setdefault(str(seed), {}).setdefault(suite, {})
                of[name] = noted(file)
    return found


def all_sampled(runs: Path, names: Sequence[str], seeds: Sequence[int]) -> Sampled:
    """Of every training that is there."""
    found: Sampled = {}
    for name, seed in product(names, seeds):
        file = runs / f"{name}-{seed}" / "run" / "metrics.csv"
        if file.is_file():
            with file.open() as lines:
                counts = [float(row["tokens/sampled"] or 0) for row in csv.DictReader(lines)]
            found.setdefault(name, {})[str(seed)] = int(max(counts))
    return found


def later(cells: dict[str, Any], suite: str, condition: str) -> Float[np.ndarray, "S P"]:
    """Success in the tasks after the first, of every seed and pack."""
    return np.array([one[suite][condition][:, 1:].mean(1) for one in cells.values()])


def gained(cells: dict[str, Any], suite: str) -> Float[np.ndarray, "S P"]:
    """Success in tasks after the first: the trained policy less its warm start at whichever temperature solves more there."""
    warm = max((later(cells, suite, name) for name in ("warm", "warm_hot")), key=np.mean)
    return later(cells, suite, "trained") - warm


@cache
def noting() -> dict[str, Any]:
    """By seed, what `generalisation.py` found for warm starts on demonstrations of sixteen kinds that note every fact."""
    return kept(read(Path("docs/results/generalisation.json"))["success"], {})[str(DEMONSTRATED)]


def beyond(cells: dict[str, Any], suite: str) -> Float[np.ndarray, "S P"]:
    """Success in tasks after the first: the trained policy less those warm starts at T=0.3, of the seeds that have both."""
    both = [seed for seed in cells if seed in noting()]
    trained, warm = ({seed: one[seed] for seed in both} for one in (cells, noting()))
    return later(trained, suite, "trained") - later(warm, suite, "warm")


def more_noted(cells: dict[str, Any], suite: str) -> list[float]:
    """By seed: share of facts noted by the trained policy less that of its warm start at T=0.3."""
    return [one[suite]["trained"] - one[suite]["warm"] for one in cells.values()]


def plain(of: dict[str, Any]) -> dict[str, Any]:
    """The cells that are no variants."""
    return {name: one for name, one in of.items() if name not in VARIANTS}


def compared(results: Cells, facts: Noted) -> list[str]:
    """The section with what differs in the variants: each less the cell that it varies, over the seeds that have both."""
    rows: list[list[str]] = []
    for name in (one for one in results if one in VARIANTS):
        both = str(VARIANTS[name].kinds), name
        seeds = [seed for seed in results[name] if seed in results.get(both[0], {})]
        noted_in, known = ([{seed: of[one][seed] for seed in seeds} for one in both] for of in (facts, results))
        less = np.subtract(*(more_noted(one, "offset") for one in reversed(noted_in))).tolist()
        success = np.subtract(*(gained(one, "offset") for one in reversed(known)))
        rows.append([VARIANTS[name].about, over_seeds(less), interval(success)])
    head = ["otherwise", "facts noted in offset", "success in offset"]
    return ["## One thing otherwise", "", "Less the policy trained on as many kinds.", "", table(head, rows), ""]


def page(cells: Cells, facts_of: Noted) -> str:
    """The results as Markdown."""
    results, facts = plain(cells), plain(facts_of)
    few, many = min(results, key=int), max(results, key=int)
    rows: list[list[str]] = []
    for suite in ("sizes", *FAMILIES):
        row = [suite]
        for count in (few, many):
            before, after = (mean(one[suite][key] for one in facts[count].values()) for key in ("warm", "trained"))
            row += [f"{before:.2f} to {after:.2f}: {over_seeds(more_noted(facts[count], suite))}"]
            row += [interval(gained(results[count], suite))]
        rows.append([*row, interval(beyond(results[many], suite))])
    kinds = [f"{count} kind{'s' * (count != '1')}" for count in (few, many)]
    head = [
        "tested on",
        *(f"{what}, {of}" for of in kinds for what in ("facts noted", "success")),
        "against full notes",
    ]
    lines = [
        "# A habit that carries over",
        "",
        *ABOUT.strip().format(command=COMMAND).splitlines(),
        "",
        table(head, rows),
        "",
    ]
    lines += [*SEEN.strip().splitlines(), "", "![transfer before and after training](habit.svg)", ""]
    return "\n".join([*lines, *compared(cells, facts_of), "## Limits", "", LIMITS.strip(), ""])


ABOUT = """
**Does what training strengthens in some environments show in others?** A policy of 0.61 million parameters is warm-started on
demonstrations of sixteen kinds of [invented domains](../guides/invented_domains.md) whose writer notes two facts in five,
trained by reinforcement learning on the first 1 to 16 (60 rollouts of 512 lifecycles), and plays 96 packs of 4 in sizes
and three families that it never met, in unseen words.

    {command}

*Facts noted*: of those that feedback showed and the context lacked, the share that the next context has, warm start (T=0.3) to
trained (T=1), and the difference. *Success*: in tasks 1 to 3, less the warm start at its better temperature. *Against full notes*:
sixteen kinds less a warm start whose [demonstrations note every fact](generalisation.md). 95 % intervals over three seeds, for
success over packs as well. Two, four and eight kinds, positions and samples are in [habit.json](habit.json).
"""
SEEN = """
- **The habit carries over.** Trained on one kind, the policy notes over twice as many facts in each of three new families.
- **In one of the three it pays**: success rises in offset, all through contexts; elsewhere no gain is shown.
- **More kinds do not carry further**; all train on as many lifecycles, so that of sixteen kinds each has a sixteenth.
- **It makes up for weak demonstrations, no more**: none is shown to solve more than a warm start that notes everything.
"""
LIMITS = """
Tiny policies in compact words; intervals are read one by one. Inference from what is noted is not shown; longer training is not
measured.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/habit"))
    parser.add_argument("--kinds", type=int, nargs="*", default=[1, 2, 4, 8, 16])
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--page_only", action="store_true")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    cells = {str(count): Variant(count) for count in args.kinds} | {name: VARIANTS[name] for name in args.variants}
    if not args.page_only:
        for seed, (name, of) in product(args.seeds, cells.items()):
            cell(name, of, seed, args.runs, EXPERIMENT, DEMONSTRATED)
    whole = {
        name: {seed: suites for seed, suites in seeds.items() if all("trained" in one for one in suites.values())}
        for name, seeds in measured(args.runs, list(cells), args.seeds).items()
    }
    old = read(args.out)
    results = {name: seeds for name, seeds in kept(old["success"], whole).items() if seeds}
    found = all_noted(args.runs, list(cells), args.seeds)
    both = {name: old["noted"].get(name, {}) | found.get(name, {}) for name in results}
    facts = {name: {seed: both[name][seed] for seed in seeds} for name, seeds in results.items()}
    counted, before = all_sampled(args.runs, list(cells), args.seeds), old.get("sampled", {})
    sampled = {name: before.get(name, {}) | counted.get(name, {}) for name in results}
    samples: list[str] = []
    for folder, title in (("warm", "Before, T=0.3"), ("run", "After, T=1")):
        file = args.runs / f"1-{args.seeds[0]}" / folder / "lifecycles" / "test_offset_trained.jsonl"
        samples += [f"### {title}", "", *lives(file, 3)] if file.is_file() else []
    samples = samples or old["samples"]
    content = {"success": written(results), "noted": facts, "sampled": sampled, "samples": samples}
    args.out.write_text(json.dumps(content, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(page(results, facts))
    plot(plain(results), args.out.with_suffix(".svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
