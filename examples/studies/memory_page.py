"""The page of `memory.py`: its tables, texts and figure."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from cod_lightning.evaluation.crossed import holm, seed_estimate
from cod_lightning.markdown import table
from examples.studies.signals import verdict

ROUNDS = 40
"""Rewrites that an evolution tries."""
NUM_DOORS = (4, 8, 16, 32, 64)
NUM_TASKS, NUM_PACKS = 64, 4
NOTHING = "not measured"
TITLES = {"levers": "Levers", "doors": "Doors", "many_doors": "Many doors", "frozen_lake_3x3": "FrozenLake 3x3"}
LAST = slice(-1, None)


def interval(values: Sequence[float], digits: int = 3) -> str:
    """Mean and 95 % interval over seeds; the mean alone of one seed, or of seeds that agree."""
    if not values:
        return NOTHING
    one = seed_estimate(np.array(values))
    mean_of, low, high = (f"{value:.{digits}f}" for value in (one.mean, one.low, one.high))
    return f"{mean_of} [{low}, {high}]" if one.ci95 else mean_of if len(values) > 1 else f"{mean_of} (one seed)"


def page(results: dict[str, Any], command: str) -> str:
    """The results as Markdown."""
    of_all, left = corrected(results["worlds"])
    about = ABOUT.strip().format(command=command, of_all=of_all, left=left)
    lines = ["# Memories, measured", "", *about.splitlines(), ""]
    lines += ["Success at the last position, and of one environment in the second half of packs of 32:", ""]
    lines += [by_world(results["worlds"]), ""]
    lines += [*READING.strip().splitlines(), ""]
    selected = results["selection"]
    utility, similarity = (
        interval(apart(selected[world][one], selected[world][other], *part))
        for world, one, other, part in (
            ("levers", "utility", "similarity", CHANGED),
            ("doors", "similarity", "random", HALF),
        )
    )
    lines += [*SELECTION.strip().format(utility=utility, similarity=similarity).splitlines(), ""]
    better = [one["best"] - one["first"] for seeds in results["evolved"].values() for one in seeds.values() if one]
    sizes = ", ".join(f"{name} {one['folder_kib'] / 1024:.0f}" for name, one in results["stored"].items())
    rest = REST.strip().format(
        changed=sum(gain > 0 for gain in better), runs=len(better), gain=f"{max(better):.3f}", sizes=sizes
    )
    return "\n".join([*lines, rest, "", "## Limits", "", LIMITS.strip(), ""])


def by_world(worlds: dict[str, Any]) -> str:
    """A row for each memory and a column for each of `COLUMNS`; `-` and `+` mark differences from the hint that are shown."""
    rows: dict[str, list[str]] = {}
    marks = {"better": " +", "worse": " -"}
    for column, (_, _, place) in COLUMNS.items():
        for memory, (found, less) in beside_hint(worlds, column).items():
            mark = marks.get(verdict(less), "") if memory != "hint" else ""
            rows.setdefault(memory, []).append(over(found, "trained", place) + mark)
    return table(["memory", *COLUMNS], [[memory, *row] for memory, row in rows.items()])


def corrected(worlds: dict[str, Any]) -> tuple[int, str]:
    """How many differences from the hint there are, and which are left by Holm's correction for all."""
    p_values = {
        f"{memory} ({column})": seed_estimate(np.array(less)).p_value
        for column in COLUMNS
        for memory, (_, less) in beside_hint(worlds, column).items()
        if memory != "hint"
    }
    return len(p_values), ", ".join(holm(p_values)) or "none"


def beside_hint(worlds: dict[str, Any], column: str) -> dict[str, tuple[dict[str, Any], list[float]]]:
    """By memory: the curves of each seed in a column, and the differences from the hint's."""
    world, suite, place = COLUMNS[column]
    curves = {m: {s: one["curves"].get(suite, {}) for s, one in seeds.items()} for m, seeds in worlds[world].items()}
    known = {m: {seed: one for seed, one in of.items() if "trained" in one} for m, of in curves.items()}
    return {m: (of, apart(of, curves["hint"], "trained", place)) for m, of in known.items()}


def apart(one: dict[str, Any], other: dict[str, Any], name: str, place: slice) -> list[float]:
    """Differences of mean success at these positions, by seed."""
    return [mean(one[seed][name][place]) - mean(other[seed][name][place]) for seed in one if seed in other]


def over(seeds: dict[str, Any], name: str, place: slice) -> str:
    """Of the curve of that name."""
    return interval([mean(curves[name][place]) for curves in seeds.values() if name in curves])


COLUMNS = {
    **{TITLES[world]: (world, "held_out", LAST) for world in ("levers", "doors", "frozen_lake_3x3", "many_doors")},
    "Many doors, packs of 32": ("many_doors", "packs_32", slice(16, None)),
}
ABOUT = """
**Which context mechanism pays?** Tiny policies in compact words, each mechanism trained on packs of 4 with the same credit, loss
and demonstrations until 200,000 tokens are sampled. A mechanism without update episodes makes more optimizer updates of them.

    {command}

Means with 95 % intervals over seeds (Student's t); `+` and `-`: better or worse than the hint, paired by seed. Holm's
correction for all {of_all} leaves {left}. A guess succeeds half of the time. All else:
[memory.json](memory.json).
"""
READING = """
*Doors* has eight doors; a task asks for one and shows two others. *Many doors* has 24 and 16 tokens for a rewrite, a token a
fact: a hint cannot hold all (`episodes` has six seeds there and `hint` five).

- **With few facts** records and transcripts lead on levers, and the hint on FrozenLake; on doors no memory is shown to beat it.
- **With more facts than a hint can hold** only retrieved records beat a guess.
- With contexts blanked success is .34 to .53; [when training pays](training_pays.md) has the warm starts.
- The figure: a scripted player without fault, second half of packs of 64, by the number of doors.

![success against number of facts](memory.svg)
"""
SELECTION = """
**Which records to show** (`episodes`, packs of 32, paired by seed): after a change of the rule, when half of the records are wrong,
`select: utility` is better than similarity on levers by {utility}; similarity is better than random ones on doors by {similarity}.
"""
REST = """
**Without training**: `evolve` rewrites the hint that every agent begins with. It found a better text in {changed} of {runs}
runs, by {gain} of reward at most.

**Deployed**: an agent's folder after 2,000 tasks (`examples/studies/store_sizes.py`) takes, in MiB:
{sizes}.
"""
HALF, CHANGED = ("packs_32", slice(16, None)), ("changed_32", slice(24, None))
LIMITS = """
Scripted writers of notebook and skills do not tend a full store; both have most to learn. [The notebook](notebook.md) gets further
with more updates. Packs of 4 and 32 begin with the same tasks. Language models are not measured.
"""


def plot(facts: dict[str, dict[str, float]], file: Path) -> None:
    """Success against the number of facts."""
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, row in facts.items():
        axes.plot(NUM_DOORS, [row[str(number)] for number in NUM_DOORS], marker="o", label=name)
    axes.set(xscale="log", xlabel="doors", ylabel="success, second half", ylim=(0.4, 1.02))
    axes.set_xticks(NUM_DOORS, map(str, NUM_DOORS))
    axes.legend(fontsize="small")
    figure.savefig(file)
