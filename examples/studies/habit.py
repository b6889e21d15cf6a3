"""Is the habit of taking notes, strengthened by training in some kinds of domains, there in others?

    PYTHONPATH=. python examples/studies/habit.py --out docs/results/habit.json [--kinds 1 2 4 8 16]
        [--variants 1-trajectory ...] [--seeds 1 2 3] [--page_only]

Every cell begins with one warm start, on demonstrations of all sixteen kinds of `env/invented` in which two facts in five are noted
rightly, and is trained by reinforcement learning on the first so many of them (`fit --config experiment/invented_weak_notes`).
Cells are kept under `--runs`: one that was stopped goes on, a finished one is skipped; cells that the folder lacks stay in the
JSON as they were.
"""

import argparse
import csv
import json
import os
import sys
from collections.abc import Callable, Sequence
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
    COMMON,
    NAMES,
    PLAYED,
    SUITES,
    Cells,
    Variant,
    by_position,
    cell,
    gains,
    interval,
    kept,
    lives,
    measured,
    over_seeds,
    plot,
    read,
    transfers,
    written,
)

EXPERIMENT, DEMONSTRATED = "invented_weak_notes", 16
VARIANTS = {
    "1-trajectory": Variant(
        1, ("credit=trajectory",), about="credits every episode with the sum of its lifecycle's task rewards"
    ),
    "16-bandit": Variant(16, ("source=bandit",), about="draws its packs by a bandit over the sixteen kinds"),
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


def more_transfer(cells: dict[str, Any], suite: str) -> Float[np.ndarray, "S P"]:
    """Transfer of the trained policy less that of its warm start at T=0.3."""
    return transfers(cells, suite, "trained") - transfers(cells, suite, "warm")


def more_noted(cells: dict[str, Any], suite: str) -> list[float]:
    """By seed: share of facts noted by the trained policy less that of its warm start at T=0.3."""
    return [one[suite]["trained"] - one[suite]["warm"] for one in cells.values()]


def plain(of: dict[str, Any]) -> dict[str, Any]:
    """The cells that are no variants."""
    return {name: one for name, one in of.items() if name not in VARIANTS}


def compared(results: Cells, facts: Noted, sampled: Sampled) -> list[str]:
    """The section with what differs in the variants, each below the cell that it varies."""
    rows: list[list[str]] = []
    shown = dict.fromkeys(name for one in results if one in VARIANTS for name in (str(VARIANTS[one].kinds), one))
    for name in filter(results.get, shown):
        counts = [sampled[name][seed] / 1e6 for seed in results[name]]
        row = [name, f"{min(counts):.2f} to {max(counts):.2f}"]
        for suite in FAMILIES:
            before, after = (mean(one[suite][key] for one in facts[name].values()) for key in ("warm", "trained"))
            row.append(f"{before:.2f} to {after:.2f}: {over_seeds(more_noted(facts[name], suite))}")
        rows.append([*row, *(interval(of(results[name], "offset")) for of in (gained, more_transfer))])
        both = str(VARIANTS[name].kinds) if name in VARIANTS else "", name
        if seeds := [seed for seed in results[name] if seed in results.get(both[0], {})]:
            noted_in, known = ([{seed: of[one][seed] for seed in seeds} for one in both] for of in (facts, results))
            less = [np.subtract(*(more_noted(one, suite) for one in reversed(noted_in))).tolist() for suite in FAMILIES]
            cells = [np.subtract(*(of(one, "offset") for one in reversed(known))) for of in (gained, more_transfer)]
            rows.append([f"{name} less {both[0]}", "", *map(over_seeds, less), *map(interval, cells)])
    head = [
        "cell",
        "million tokens",
        *(f"facts noted in {suite}" for suite in FAMILIES),
        "success in offset",
        "transfer in offset",
    ]
    if not rows:
        return []
    about = [f"- `{name}` {VARIANTS[name].about}." for name in shown if name in VARIANTS]
    return ["## One thing otherwise", "", *VARIED.strip().splitlines(), "", *about, "", table(head, rows), ""]


def page(cells: Cells, facts_of: Noted, sampled: Sampled, samples: Sequence[str]) -> str:
    """The results as Markdown."""
    results, facts = plain(cells), plain(facts_of)
    head = ["tested on", *(f"{count} kind{'s' * (count != '1')}" for count in results)]

    def by_count(
        title: str, of: Callable[[dict[str, Any], str], Float[np.ndarray, "S P"]], suites: Sequence[str] = tuple(SUITES)
    ) -> list[str]:
        rows = [[SUITES[suite], *(interval(of(cells, suite)) for cells in results.values())] for suite in suites]
        return [f"## {title}", "", table(head, rows), ""]

    lines = ["# A habit that carries over", "", f"`{COMMAND}` writes this page.", "", *ABOUT.strip().splitlines(), ""]
    lines += [*SEEN.strip().splitlines(), "", "![transfer before and after training](habit.svg)", ""]
    lines += by_count("Success in tasks 1 to 3: trained, T=1, less the warm start at its better temperature", gained)
    lines += by_count("Transfer: trained, T=1, less the warm start, T=0.3", more_transfer)
    title = "Success in tasks 1 to 3: trained, T=1, less a warm start that notes everything, T=0.3"
    lines += by_count(title, beyond, [suite["name"] for suite in COMMON])
    rows = []
    for suite, title in SUITES.items():
        for name in ("warm", "warm_hot", "trained"):
            shares = [[one[suite][name] for one in seeds.values()] for seeds in facts.values()]
            rows.append([title, NAMES[name], *map(over_seeds, shares)])
        more = [more_noted(seeds, suite) for seeds in facts.values()]
        rows.append([title, "trained, T=1, less warm start, T=0.3, by seed", *map(over_seeds, more)])
    lines += ["## Facts that are noted", "", *NOTED.strip().splitlines(), ""]
    lines += [table([head[0], "policy", *head[1:]], rows), ""]
    lines += gains(results)
    lines += compared(cells, facts_of, sampled)
    for count in dict.fromkeys((min(results, key=int), max(results, key=int))):
        lines += by_position(results, count)
    lines += ["## The same packs before and after", "", *SAMPLES.strip().splitlines(), "", *samples]
    seeds_of = ", ".join(f"{name}: {len(seeds)}" for name, seeds in cells.items())
    return "\n".join([*lines, f"Seeds by cell: {seeds_of}.", ""])


ABOUT = """
The question of the method: is what training strengthens in some environments there in others? A policy of 0.61 million
parameters is warm-started on 10,000 packs of demonstrations of sixteen kinds of [invented
domains](../guides/invented_domains.md), six families. Their writer notes two facts in five as they were and leaves out or
garbles the others; their player trusts its context in nine turns of ten. Then it is trained by reinforcement learning on the
first so many of the sixteen kinds, 60 rollouts of 512 lifecycles of four tasks. The first kind, which is also the one alone, is
`lookup-4-4`: four actions in one state, and each gives another of four values.

Every policy meets the same 96 packs of 4 of each suite, without further training. *Unseen* words, sizes and families occur in
no demonstration and no rollout; of 2,048 names 256 are held out (`data.env.held_out: 256`). *Transfer* is success in tasks 1
to 3 with the contexts that the policy writes, less the same with its contexts blanked. Intervals (95 %) are over seeds and
packs.
"""
SEEN = """
## What it shows

**The habit carries over.** Trained on one kind alone, the policy notes more than twice as many of the facts it is shown in each
of three families that it never met, in words that it never met: .57 in order, .57 in threshold, .59 in offset, after .23, .23
and .26 (warm start, T=0.3). Paired by seed these are .34 [.30, .37], .34 [.30, .39] and .33 [.04, .61] more.

**In one of the three families it pays.** In offset the policy trained on one kind solves .10 [.07, .13] more than its warm start
at the better temperature, and all of that through its contexts: with blanked ones it solves no more. In order and threshold, and
in unseen sizes, more notes gain nothing that shows. There a single fact seldom answers a later task; that this is the reason was
not tested.

**More kinds do not carry further; it turns between two and four, downwards.** After one kind or two the policy notes .32 to .35
more in the three families, after four, eight or sixteen .23 to .30. Paired by seed, two kinds note more than four in order (.08
[.05, .11]) and threshold (.07 [.02, .11]), and one more than sixteen in both (.07 [.01, .14] and .11 [.07, .15]). In offset and
between one kind and two no difference is shown, nor any in success in the three families; in offset two kinds gain .09 [.07, .12],
as one does. After eight kinds success in unseen sizes rises by .05 [.01, .08], one of many cells, and transfer there is not shown
to. All train on as many lifecycles, so that of sixteen kinds each has a sixteenth of them; whether that is the reason
was not tested.

**Credit by trajectory is no better.** Over three seeds it notes .03 to .07 fewer facts in the three families than credit by
episode; only the .03 [.01, .05] in offset is more than chance. Success there is -.02 [-.07, .03] apart.

**A start that already notes everything gains nothing, and is the better one.** From demonstrations that note all facts rightly
([generalisation.md](generalisation.md)) reinforcement learning showed nothing. No policy that was trained from weak notes is
shown to solve more than those warm starts at T=0.3 in any suite of the table below; in threshold the one trained on one kind
solves .03 [.01, .05] less, in offset the one trained on sixteen .07 [.02, .12]. What carries over makes up for weak
demonstrations.

**A smaller policy is not shown to carry it over.** With 0.22 million parameters, three seeds, a warm start of its own notes
.42 to .56 at T=0.3 already, and training adds nothing that shows: .10 [-.28, .49] in order, .07 [-.20, .34] in threshold,
-.01 [-.39, .38] in offset. Success in offset rises by .10 [.04, .17] less than with 0.61 million.

**A bandit over the sixteen kinds is not shown to be better** than drawing them evenly, three seeds: .03 to .05 more
of the facts are noted in the three families, .00 [-.05, .05] more of the tasks solved in offset, all within chance.

**From notes that mean nothing no habit came**, three seeds: demonstrations whose notes are random, then training on graphs alone.
After as many rollouts .00 to .02 of the facts are noted in graphs themselves, .08 to .11 before, and contexts are worth nothing
there: transfer .00 [-.02, .02]. It is as on [lakes that show positions alone](uninformative_positions.md); on
[levers](uninformative.md), in 400 rollouts rather than 60, it does come.

Not shown: inference from what is noted; other dials of the writer than these three; longer training. Not measured yet, though the
script has it: a larger policy (`1-large`).
"""
VARIED = """
All train on 30,720 lifecycles; *million tokens* are those sampled, least and most of the seeds. The other columns have the
trained policy, T=1, less its warm start: of facts noted, at T=0.3, with both shares before it; of success in tasks 1 to 3, at
its better temperature; of transfer, at T=0.3.
"""
NOTED = """
Of the facts that feedback showed and the context lacked, the share that the next context has; means over seeds with Student's
95 % intervals.
"""
SAMPLES = """
The first three lifecycles of the suite *offset*, seed 1: the warm start, then the policy trained on one kind of another family.
Names stand in a ring, and each gives the one a hidden number of places further. Greedy, the warm start notes nothing; the
trained policy notes most facts, some under a wrong first name.
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
    args.out.with_suffix(".md").write_text(page(results, facts, sampled, samples))
    plot(plain(results), args.out.with_suffix(".svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
