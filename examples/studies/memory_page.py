"""The page of `memory.py`: its tables, texts and figure."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from cod_lightning.evaluation.crossed import seed_estimate
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
    """Mean and 95 % interval over seeds; the mean alone of one seed."""
    if not values:
        return NOTHING
    one = seed_estimate(np.array(values))
    mean_of, low, high = (f"{value:.{digits}f}" for value in (one.mean, one.low, one.high))
    return f"{mean_of} [{low}, {high}]" if one.ci95 else f"{mean_of} (one seed)"


def page(results: dict[str, Any], command: str) -> str:
    """The results as Markdown."""
    lines = ["# Memories, measured", "", *ABOUT.strip().format(command=command).splitlines(), ""]
    for title, (suite, place) in SUITES.items():
        lines += [f"## {title}", "", by_world(results["worlds"], suite, place), ""]
    lines += [*READING.strip().splitlines(), ""]
    rows = [
        [f"{one} less {other}, {TITLES[world]}", *(interval(apart(by[one], by[other], *part)) for part in PARTS)]
        for world, by in results["selection"].items()
        for one, other in (("utility", "similarity"), ("similarity", "random"))
        if by[one] and by[other] and world != "frozen_lake_3x3"
    ]
    head = ["difference, paired by seed", "packs of 32, second half", "24 to 31, after a change at 16"]
    lines += ["## Which records to show", "", *SELECTION.strip().splitlines(), "", table(head, rows), ""]
    better = [one["best"] - one["first"] for seeds in results["evolved"].values() for one in seeds.values() if one]
    sizes = ", ".join(f"{name} {one['folder_kib'] / 1024:.0f}" for name, one in results["stored"].items())
    rest = REST.strip().format(
        changed=sum(gain > 0 for gain in better), runs=len(better), gain=f"{max(better):.3f}", sizes=sizes
    )
    return "\n".join([*lines, rest, "", "## Limits", "", LIMITS.strip(), ""])


def by_world(worlds: dict[str, Any], suite: str, place: slice) -> str:
    """A row for each memory and a column for each environment; `-` and `+` mark differences from the hint that are shown."""
    rows: dict[str, list[str]] = {}
    for memories in worlds.values():
        curves = {m: {s: one["curves"].get(suite, {}) for s, one in seeds.items()} for m, seeds in memories.items()}
        for memory, of in curves.items():
            found = {seed: one for seed, one in of.items() if "trained" in one}
            marks = {"better": " +", "worse": " -"}
            mark = marks.get(verdict(apart(found, curves["hint"], "trained", place)), "") if memory != "hint" else ""
            rows.setdefault(memory, []).append(over(found, "trained", place) + mark)
    return table(["memory", *(TITLES[world] for world in worlds)], [[memory, *row] for memory, row in rows.items()])


def apart(one: dict[str, Any], other: dict[str, Any], name: str, place: slice) -> list[float]:
    """Differences of mean success at these positions, by seed."""
    return [mean(one[seed][name][place]) - mean(other[seed][name][place]) for seed in one if seed in other]


def over(seeds: dict[str, Any], name: str, place: slice) -> str:
    """Of the curve of that name."""
    return interval([mean(curves[name][place]) for curves in seeds.values() if name in curves])


SUITES = {
    "Packs of 4: success at the last position": ("held_out", LAST),
    "Packs of 32: success in the second half": ("packs_32", slice(16, None)),
}
ABOUT = """
**Which context mechanism pays?** Tiny policies in compact words, each mechanism trained on packs of 4 with the same credit, loss
and demonstrations until 200,000 tokens are sampled. A mechanism without update episodes makes more optimizer updates of them.

    {command}

Means with 95 % intervals over seeds (Student's t); `+` and `-`: better or worse than the hint, paired by seed. A guess succeeds
half of the time. Blanked contexts, warm starts, changes of the rule, positions and seeds are in [memory.json](memory.json).
"""
READING = """
*Doors* has eight doors; a task asks for one and shows two others. *Many doors* has 24 and 16 tokens for a rewrite, a token a
fact: a hint cannot hold all (`episodes` has six seeds there and `hint` five).

- **With few facts** records and transcripts lead on levers, and the hint on FrozenLake; on doors no memory is shown to beat it.
- **With more facts than a hint can hold** only retrieved records beat a guess.
- With contexts blanked success is .34 to .53. Trained policies beside their warm starts: [another page](training_pays.md).
- The figure: a scripted player that reads and writes without fault, second half of packs of 64, by the number of doors.

![success against number of facts](memory.svg)
"""
SELECTION = """
`episodes` trained with `select: utility`, played with other ways to select four records. After the change half of the records are
wrong: those of high utility then help on levers, and on doors similarity helps more.
"""
REST = """
**Credit**: neither the sum of the lifecycle (`credit=TrajectoryCredit`; skills on doors, acts on FrozenLake) nor half a
point more for a task that is solved with a skill (levers) makes a difference that is shown.

**Without training**: `evolve` rewrites the hint that every agent begins with. It found a better text in {changed} of {runs}
runs, by {gain} of reward at most.

**Deployed**: an agent's folder after 2,000 tasks (`examples/studies/store_sizes.py`) takes, in MiB:
{sizes}.
"""
PARTS = (("packs_32", slice(16, None)), ("changed_32", slice(24, None)))
LIMITS = """
- Scripted writers of notebook and skills do not tend a full store; both have most to learn. [The notebook](notebook.md) gets
  further with more updates.
- Packs of 4 and 32 begin with the same tasks: the tables are not independent. Language models are not measured.
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
