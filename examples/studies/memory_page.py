"""The page of `memory.py`: its tables, texts and figure."""

from collections.abc import Iterator, Sequence
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
CONTROLS = ("blanked_context", "warm_start_t0.3")
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
    head = ["memory", "at 3", "at 3, context blanked", "at 3, warm start, T=0.3", "second half of packs of 32"]
    head += ["at 7 after a change at 4", "tokens of a prompt at 31"]
    for world, every in results["worlds"].items():
        memories = {memory: seeds for memory, seeds in every.items() if seeds}
        missing = [memory for memory in every if memory not in memories]
        rows = [
            [
                memory,
                *(at(seeds, "held_out", name, LAST) for name in ("trained", *CONTROLS)),
                at(seeds, "packs_32", "trained", slice(16, None)),
                at(seeds, "changed", "trained", LAST),
                f"{mean(one['prompt_tokens'][31] for one in seeds.values()):.0f}",
            ]
            for memory, seeds in memories.items()
        ]
        lines += [f"## {TITLES[world]}", "", table(head, rows), "", *reading(memories)]
        lines += [f"Not measured here: {', '.join(missing)}.", ""] if missing else []
    rows = [
        [
            f"{credit} less episode, {memory}, {TITLES[world]}",
            interval(apart(held_out(seeds), held_out(by["episode"]), "trained", LAST)),
        ]
        for world, memory, by in credits(results)
        for credit, seeds in by.items()
        if credit != "episode"
    ]
    lines += ["## Credit", "", CREDIT.strip(), "", table(["difference, paired by seed", "at 3"], rows), ""]
    rows = [
        [f"{one} less {other}, {TITLES[world]}", *(interval(apart(by[one], by[other], *part)) for part in PARTS)]
        for world, by in results["selection"].items()
        for one, other in (("utility", "similarity"), ("similarity", "random"))
        if by[one] and by[other]
    ]
    head = ["difference, paired by seed", "packs of 32, second half", "after a change at 16 (16 to 23)", "24 to 31"]
    lines += ["## What is retrieved", "", SELECTION.strip(), "", table(head, rows) if rows else "Not measured.", ""]
    rows = [
        [
            TITLES[world],
            *(f"{one['first']:.3f} to {one['best']:.3f}, {one['kept']} of {ROUNDS}" for one in seeds.values() if one),
        ]
        for world, seeds in results["evolved"].items()
    ]
    lines += ["## Without training", "", *EVOLVED.strip().splitlines(), ""]
    lines += [table(["environment", "seed 1", "2", "3"], rows), ""]
    sizes = [[memory, f"{one['folder_kib']:,}", f"{one['state_kib']:,}"] for memory, one in results["stored"].items()]
    lines += [
        "## Deployed",
        "",
        *STORED.strip().splitlines(),
        "",
        table(["memory", "folder, KiB", "state, KiB"], sizes),
        "",
    ]
    lines += [
        "## Facts to keep",
        "",
        *FACTS.strip().splitlines(),
        "",
        "![success against number of facts](memory.svg)",
        "",
    ]
    return "\n".join([*lines, "## Limits", "", LIMITS.strip(), ""])


def reading(memories: dict[str, Any]) -> list[str]:
    """What is shown of each memory, which is where the interval of differences, paired by seed, leaves out 0."""

    def differences(memory: str, other: str, suite: str, condition: str, place: slice) -> list[float]:
        one, base = memories[memory], memories[other]
        return [
            mean(one[seed]["curves"][suite]["trained"][place]) - mean(base[seed]["curves"][suite][condition][place])
            for seed in one
            if seed in base and {suite} <= one[seed]["curves"].keys() & base[seed]["curves"].keys()
        ]

    compared = {
        "Against the hint, at 3": ("held_out", LAST),
        "In the second half of packs of 32": ("packs_32", slice(16, None)),
    }
    lines: list[str] = []
    for what, (suite, place) in compared.items():
        found = {m: verdict(differences(m, "hint", suite, "trained", place)) for m in memories if m != "hint"}
        groups = {one: [m for m in found if found[m] == one] for one in ("better", "worse", "no difference shown")}
        lines.append(f"- {what}: " + "; ".join(f"{one} {', '.join(of)}" for one, of in groups.items() if of) + ".")
    return [*lines, ""]


def credits(results: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """World, memory and what was trained there, by credit."""
    for name, by in results["credit"].items():
        world, memory = name.split()
        plain = {"episode": results["worlds"].get(world, {}).get(memory)}
        yield world, memory, {credit: seeds for credit, seeds in ({**by, **plain}).items() if seeds}


def held_out(seeds: dict[str, Any]) -> dict[str, Any]:
    """Each seed's curves in packs of 4."""
    return {seed: one["curves"]["held_out"] for seed, one in seeds.items()}


def apart(one: dict[str, Any], other: dict[str, Any], name: str, place: slice) -> list[float]:
    """Differences of mean success at these positions, by seed."""
    return [mean(one[seed][name][place]) - mean(other[seed][name][place]) for seed in one if seed in other]


def at(seeds: dict[str, Any], suite: str, condition: str, place: slice) -> str:
    """Mean success at these positions, over seeds."""
    return over({seed: one["curves"].get(suite, {}) for seed, one in seeds.items()}, condition, place)


def over(seeds: dict[str, Any], name: str, place: slice) -> str:
    """Of the curve of that name."""
    return interval([mean(curves[name][place]) for curves in seeds.values() if name in curves])


ABOUT = """
**Which context mechanism pays?** Tiny policies in compact words, each mechanism trained on packs of 4 with the same credit, loss
and demonstrations until 200,000 tokens are sampled; one without update episodes has more optimizer updates. `{command}` makes it
again; success by position, other lengths, random weights and single seeds are in [memory.json](memory.json). Means with 95 %
intervals over seeds (Student's t); longer packs and changes of the rule without further training; positions count from 0.

*Doors* has eight doors, of which a task asks for one and shows two others; *many doors* has 24 and 16 tokens for a rewrite, a
token a fact: a hint cannot hold all. There `episodes` has six seeds and `hint` five, added because three did not decide between
them.
"""
CREDIT = """
`trajectory` credits every episode with its lifecycle's sum; with `use paid` a task that is solved with a skill earns half a point
more in training.
"""
SELECTION = """
`episodes` trained with `select: utility`, played with other ways to select four records. After the change half of the records are
wrong.
"""
PARTS = (("packs_32", slice(16, None)), ("changed_32", slice(16, 24)), ("changed_32", slice(24, None)))
EVOLVED = """
`evolve` rewrites the hint that every agent begins with; the policy is the warm start at T=0.3. Mean reward in 64 validation packs,
with nothing to begin with and with the best text, and rewrites kept.
"""
FACTS = """
Success in the second half of packs of 64, by the number of doors, of a scripted player that reads and writes without fault: only
what a memory keeps and shows makes a difference. A guess succeeds half of the time.
"""
STORED = """
An agent's folder after 2,000 tasks (`tests/soak/store_sizes.py`): versions are kept as what is new in them.
"""
LIMITS = """
- Where a store is full the scripted writers of notebook and skills do not tend it: how well a trained policy would is not shown.
- Packs of 4 to 32 with the same index begin with the same tasks, so their columns are not independent.
- Notebook and skills have most to learn. With more updates [the notebook](notebook.md) gets further; skills are not measured
  there.
- Tasks of many turns: [memory within a task](inside_an_episode.md). `deploy` under kill signals:
  [deploy_kills.json](deploy_kills.json).
- Memories with language models are not measured.
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
