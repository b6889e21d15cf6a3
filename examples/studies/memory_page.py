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
SUITES = {"held_out": 4, "packs_8": 8, "packs_16": 16, "packs_32": 32}
CONTROLS = ("blanked_context", "shuffled_context", "warm_start_t0.3", "warm_start")
NUM_DOORS = (4, 8, 16, 32, 64)
NUM_TASKS, NUM_PACKS = 64, 4
NOTHING = "not measured"
TITLES = {"levers": "Levers", "doors": "Doors", "many_doors": "Many doors", "frozen_lake_3x3": "FrozenLake 3x3"}
LAST = slice(-1, None)


def interval(values: Sequence[float]) -> str:
    """Mean and 95 % interval over seeds; the mean alone of one seed."""
    if not values:
        return NOTHING
    one = seed_estimate(np.array(values))
    return f"{one.mean:.3f}" + (f" [{one.low:.3f}, {one.high:.3f}]" if one.ci95 else " (one seed)")


def page(results: dict[str, Any], command: str) -> str:
    """The results as Markdown."""
    lines = ["# Memories, measured", "", f"`{command}` writes this page.", *ABOUT.strip().splitlines(), ""]
    for world, every in results["worlds"].items():
        memories = {memory: seeds for memory, seeds in every.items() if seeds}
        missing = [memory for memory in every if memory not in memories]
        half = {name: slice(size // 2, None) for name, size in SUITES.items()}
        lines += [
            f"## {TITLES[world]}\n\nSuccess in packs of 4, as trained, by position; then at the last one with a control.",
            "",
        ]
        rows = [
            [
                memory,
                *(at(seeds, "held_out", "trained", slice(n, n + 1)) for n in range(4)),
                *(at(seeds, "held_out", name, LAST) for name in CONTROLS),
                interval([curve[-1] for curve in results["random_weights"].get(world, {}).get(memory, {}).values()]),
            ]
            for memory, seeds in memories.items()
        ]
        head = ["memory", *map(str, range(4)), "context blanked", "of another pack", "warm start, T=0.3", "T=1"]
        head.append("random weights")
        lines += [
            table(head, rows),
            "",
            "Without further training, mean success in the second half of longer packs; recovery in packs of 8 whose",
            "rule changes at task 4 (0-based); and tokens of the first prompt of a task, at positions 1, 8 and 31.",
            "",
        ]
        rows = [
            [
                memory,
                *(at(seeds, name, "trained", half[name]) for name in ("packs_8", "packs_16", "packs_32")),
                *(at(seeds, "changed", "trained", slice(n, n + 1)) for n in (3, 4, 7)),
                *(f"{mean(one['prompt_tokens'][n] for one in seeds.values()):.0f}" for n in (1, 8, 31)),
            ]
            for memory, seeds in memories.items()
        ]
        changed = ["at 3, before the change", "at 4", "at 7"]
        head = ["memory", "of 8", "of 16", "of 32", *changed, "tokens at 1", "at 8", "at 31"]
        lines += [table(head, rows), "", *([f"Not measured here: {', '.join(missing)}.", ""] if missing else [])]
        lines += reading(memories)
    rows = [
        [f"{memory}, {TITLES[world]}", credit, *(at(seeds, "held_out", "trained", slice(n, n + 1)) for n in range(4))]
        for world, memory, by in credits(results)
        for credit, seeds in by.items()
    ]
    lines += ["## Credit", "", CREDIT.strip(), "", table(["memory", "credit", *map(str, range(4))], rows), ""]
    rows = [
        [
            f"{credit} less episode, {memory}, {TITLES[world]}",
            interval(apart(held_out(seeds), held_out(by["episode"]), "trained", LAST)),
        ]
        for world, memory, by in credits(results)
        for credit, seeds in by.items()
        if credit != "episode"
    ]
    lines += [table(["difference, paired by seed", "3"], rows), ""]
    rows = [
        [
            f"{how}, {TITLES[world]}",
            over(seeds, "packs_32", slice(16, None)),
            *(over(seeds, "changed_32", place) for place in (slice(8, 16), slice(16, 24), slice(24, None))),
        ]
        for world, by in results["selection"].items()
        for how, seeds in by.items()
        if seeds
    ]
    head = ["selection", "packs of 32, second half", "before the change (8 to 15)", "after it (16 to 23)", "24 to 31"]
    lines += ["## What is retrieved", "", SELECTION.strip(), "", table(head, rows) if rows else "Not measured.", ""]
    rows = [
        [f"{one} less {other}, {TITLES[world]}", *(interval(apart(by[one], by[other], *part)) for part in PARTS)]
        for world, by in results["selection"].items()
        for one, other in (("utility", "similarity"), ("similarity", "random"))
        if by[one] and by[other]
    ]
    head = ["difference, paired by seed", *head[1:2], *head[3:]]
    lines += [table(head, rows), ""] if rows else []
    rows = [
        [
            TITLES[world],
            seed,
            f"{one['first']:.3f}",
            f"{one['best']:.3f}",
            f"{one['kept']} of {ROUNDS}",
            f"{one['lifecycles']}",
        ]
        for world, seeds in results["evolved"].items()
        for seed, one in seeds.items()
        if one
    ]
    head = ["environment", "seed", "nothing to begin with", "best text", "rewrites kept", "lifecycles played"]
    lines += ["## Without training", "", EVOLVED.strip(), "", table(head, rows), ""]
    rows = [
        [
            memory,
            *(f"{one[name]:,}" for name in ("tasks", "kills", "finished_tasks_lost", "stores_damaged")),
            "yes" if one["same_as_never_killed"] else "no",
            *(f"{one[name]:,}" for name in ("store_kib", "state_kib", "task_ms_first_20", "task_ms_last_20")),
        ]
        for memory, one in results["deployed"].items()
    ]
    lines += ["## Deployed", "", DEPLOYED.strip(), "", table(DEPLOYED_HEAD, rows), ""]
    sizes = [[memory, f"{one['folder_kib']:,}", f"{one['state_kib']:,}"] for memory, one in results["stored"].items()]
    lines += [STORED.strip(), "", table(["memory", "folder, KiB", "state, KiB"], sizes), ""]
    lines += [
        "## Facts to keep",
        "",
        f"Doors with two glimpses, packs of {NUM_TASKS}: success in the second half of {NUM_PACKS} packs, by the number of",
        "doors. The player is scripted: it reads and writes without fault, so that only what a memory keeps and shows makes a",
        "difference. A guess succeeds half of the time.",
        "",
        table(
            ["memory", *map(str, NUM_DOORS)],
            [[name, *(f"{row[str(n)]:.2f}" for n in NUM_DOORS)] for name, row in results["facts"].items()],
        ),
        "",
        "![success against number of facts](memory.svg)",
        "",
        f"At 10,000 records a retrieval took {results['retrieval_ms']['later']:.1f} ms, and the first one, which makes the index,",
        f"{results['retrieval_ms']['first']:.0f} ms.",
        "",
        "## Limits",
        "",
        LIMITS.strip(),
        "",
    ]
    return "\n".join(lines)


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
        "the same with its context blanked": {m: (m, "held_out", "blanked_context", LAST) for m in memories},
        "its warm start at T=0.3": {m: (m, "held_out", "warm_start_t0.3", LAST) for m in memories},
        "the hint": {m: ("hint", "held_out", "trained", LAST) for m in memories if m != "hint"},
        "the hint, second half of packs of 32": {
            m: ("hint", "packs_32", "trained", slice(16, None)) for m in memories if m != "hint"
        },
    }
    lines = ["Shown at the last position of packs of 4 unless said otherwise, by intervals that leave out 0:", ""]
    for what, every in compared.items():
        found = {memory: verdict(differences(memory, *by)) for memory, by in every.items()}
        groups = {one: [m for m in found if found[m] == one] for one in ("better", "worse", "no difference shown")}
        said = "; ".join(f"{one}: {', '.join(of) or 'none'}" for one, of in groups.items())
        lines.append(f"- Against {what}. {said.capitalize()}.")
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
Each memory is trained on packs of 4 by the same credit (`credit=episode`), the same loss (`method=rec`) and from as many
demonstrations, until training has sampled 200,000 tokens; one without update episodes therefore has more optimizer updates. Tiny
policies in compact wording. Means over seeds with 95 % intervals over seeds (Student's t). `warm start` is
the same mechanism with the policy that was not trained by reinforcement, `random weights` with one that was not trained at all.

*Doors* has eight doors, of which a task asks for one and shows two others; *many doors* has 24 and at most 16 tokens for a
rewrite, a token a fact, so that a hint cannot hold all. Notebook, skills and acts have room for their operations besides and
keep as much as with eight doors, the constant state keeps 16 facts. There `episodes` has six seeds and `hint` five: after the
three that all memories have, their difference in packs of 32 was not decided (0.17, interval from -0.06 to 0.40), and three
more were trained. Of seed 5 the warm start of `hint` would demonstrate a rewrite of 17 tokens, and is refused.
"""
CREDIT = """
Success by position in packs of 4. `episode` credits each episode with its own reward and those of later ones, `trajectory` all of
a lifecycle with its sum; with `use paid` a task that is solved with a skill earns half a point more in training (`+reward=use`).
"""
SELECTION = """
The `episodes` that were trained above with `select: utility`, played with the other ways to select four records; packs of 32, and
packs of 32 whose rule changes at task 16, where half of the records are then wrong.
"""
PARTS = (("packs_32", slice(16, None)), ("changed_32", slice(16, 24)), ("changed_32", slice(24, None)))
EVOLVED = """
`evolve` (reflective prompt evolution, in the manner of GEPA) rewrites the hint that every agent begins with; the policy is the warm
start at T=0.3 and does not change. Mean reward in 64 validation packs.
"""
DEPLOYED = """
`deploy` over 200 tasks, killed with SIGKILL at random moments and started again (`tests/soak/deploy_kills.py`, whose file this page
reads). The store keeps every version of the context; the state is the latest one.
"""
STORED = """
The whole folder after 2,000 tasks (`tests/soak/store_sizes.py`), never killed: versions are kept as what is new in them.
"""
DEPLOYED_HEAD = (
    "memory", "tasks", "kills", "finished tasks lost", "stores damaged", "state as never killed", "store, KiB", "state, KiB",
    "ms a task, first 20", "last 20"
)  # fmt: skip
LIMITS = """
- The scripted writers of notebook and skills keep facts in the order of the doors' numbers, and are refused what no longer fits:
  their rows show a full store that is not tended. The hint with a bound keeps the last doors. How well a trained policy tends a
  full one is not shown.
- Packs of 8, 16 and 32 with the same index begin with the same tasks, so these columns are not independent.
- Notebook and skills have most to learn: an update of several operations, and for skills a choice besides. With more updates
  the notebook gets further ([its page](notebook.md)); how far skills get is not measured.
- Rows are of several runs of this command at several commits; `acts` on FrozenLake was trained at two of them, to the same figures.
- In tasks of many turns the constant state and compacting are measured on [their own page](inside_an_episode.md).
- Not measured: memories with language models. Models behind endpoints are not trained; none was at hand here.
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
