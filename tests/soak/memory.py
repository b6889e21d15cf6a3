"""Memories compared: each is trained by `sweep` at equal sampled tokens, then deployed on longer packs and under a changed rule.

    PYTHONPATH=. python tests/soak/memory.py --out docs/results/memory.json [--worlds levers doors] [--seeds 1 2 3] [--page_only]

Runs `python -m cod_lightning sweep --config study/memory_WORLD context=MEMORY_compact warm_start=... seed_everything=SEEDS` for
each world and memory, each into a folder of its own under `--runs`; then skills and acts again with `credit=trajectory`,
`python -m cod_lightning test` of the trained `episodes` with other retrievals, and `python -m cod_lightning evolve`. Finished
runs are kept, so that the command goes on where it was stopped. `--page_only` trains nothing. What has no run keeps what
`--out` holds of it, or is listed as not measured.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from cod_lightning.contexts import (
    ContextMechanism,
    EpisodesContext,
    HintContext,
    NotebookContext,
    SkillsContext,
    TranscriptContext,
)
from cod_lightning.contexts.episodes import EpisodesState
from cod_lightning.contexts.records import Record
from cod_lightning.envs.doors import Doors
from cod_lightning.evaluation.condition_kinds import ConditionKind
from cod_lightning.evaluation.crossed import seed_estimate
from cod_lightning.evaluation.references import play_reference
from cod_lightning.markdown import table
from cod_lightning.types import Message, Split

WITHIN = {"acts": ("plan=no_updates",), "constant_state": ("plan=no_updates",), "compacting": ()}
"""Memories that are written within tasks, and what each is chosen with besides."""
MEMORIES = ("hint", "notebook", "episodes", "transcript", "skills", *WITHIN)
WORLDS = ("levers", "doors", "frozen_lake_3x3")
BY_TRAJECTORY = (("levers", "skills"), ("doors", "skills"), ("frozen_lake_3x3", "acts"))
"""Worlds and memories that are trained with `credit=trajectory` too."""
SELECTIONS = ("utility", "similarity", "random")
_PLAIN = {"num_packs": 64, "pack_size": 32, "controls": [], "warm_start_temperatures": []}
ROUNDS = 40
"""Rewrites that an evolution tries."""
LONG = [{"name": "packs_32", **_PLAIN}, {"name": "changed_32", **_PLAIN, "wrap": "non_stationary", "change_at": 16}]
"""Suites in which an agent has more records than a task is shown."""
SUITES = {"held_out": 4, "packs_8": 8, "packs_16": 16, "packs_32": 32}
CONTROLS = ("blanked_context", "shuffled_context", "warm_start_t0.3", "warm_start")
NUM_DOORS = (4, 8, 16, 32, 64)
NUM_TASKS, NUM_PACKS = 64, 4
NOTHING = "not measured"
TITLES = {"levers": "Levers", "doors": "Doors", "frozen_lake_3x3": "FrozenLake 3x3"}
LAST = slice(-1, None)


class ShortHint(HintContext):
    """The hint of a scripted writer that has room for 16 facts, and leaves out the first doors'."""

    def write(self, note: str, messages: Sequence[Message]) -> str:
        return super().write(" ".join(note.split()[-16:]), messages)


BOUNDED: dict[str, ContextMechanism] = {
    "hint, no bound": HintContext("compact"),
    "hint, 16 facts": ShortHint("compact"),
    "notebook, 8 entries": NotebookContext("compact", max_entries=8, budget=16),
    "skills, 8": SkillsContext("compact", max_skills=8, budget=48),
    "transcript, 64 words": TranscriptContext("compact", budget=64),
    "episodes, 4 by utility": EpisodesContext("compact", part_tokens=8),
    "episodes, 4 by similarity": EpisodesContext("compact", select="similarity", part_tokens=8),
    "episodes, 4 at random": EpisodesContext("compact", select="random", part_tokens=8),
}
"""As the studies set them, for the figure over the number of facts."""


def train(world: str, memory: str, seeds: Sequence[int], runs: Path, credit: str = "episode") -> None:
    """The runs of one memory in one world; those that are finished are skipped."""
    suffix = "" if memory == "hint" else f"_{memory}"
    shared = world == "frozen_lake_3x3" and memory in WITHIN  # with docs/results/inside_an_episode.md
    started = f"warm_start=warm_start/{'' if shared else 'memory_'}{world}{suffix}"
    choices = (*WITHIN.get(memory, ()), started)
    seeded = f"seed_everything={','.join(map(str, seeds))}"
    out = ["--out", str(runs / named(world, memory, credit))]
    command = ["sweep", "--config", f"study/memory_{world}", f"context={memory}_compact", f"credit={credit}", *choices]
    subprocess.run([sys.executable, "-m", "cod_lightning", *command, seeded, *out], check=True)


def named(world: str, memory: str, credit: str) -> str:
    """Folder of the runs."""
    return f"{world}_{memory}" + ("" if credit == "episode" else f"_{credit}")


def select(world: str, how: str, runs: Path, *, play: bool) -> dict[str, Any]:
    """Curves of the trained `episodes`, with records selected so, by seed; what was played before is read again."""
    found: dict[str, Any] = {}
    for run in sorted((runs / f"{world}_episodes").glob("*,seed=*")):
        out, trained = runs / f"{world}_episodes_{how}" / run.name, run / "checkpoints" / "last.ckpt"
        if ",warm_start," in run.name or not trained.is_file():
            continue
        if play and not (out / "evaluation.json").is_file():
            command = [
                "test",
                "--config",
                str(run / "config.yaml"),
                "--ckpt_path",
                str(trained),
                "--warm_start",
                "null",
            ]
            command += [
                "--data.context.init_args.select",
                how,
                "--accept_changes",
                "true",
                "--data.suites",
                json.dumps(LONG),
            ]
            command += ["--trainer.default_root_dir", str(out)]
            subprocess.run([sys.executable, "-m", "cod_lightning", *command], check=True)
        if not (out / "evaluation.json").is_file():
            continue
        suites = json.loads((out / "evaluation.json").read_text())["suites"]
        found[seed_of(run)] = {name: [p["success"] for p in suite["positions"]] for name, suite in suites.items()}
    return found


def evolve(seed: int, runs: Path, *, play: bool) -> dict[str, Any]:
    """What came of evolving the hint that agents begin with on the levers, by a policy that is only warm-started."""
    out = runs / f"levers_evolved_{seed}"
    if play and not (out / "context.yaml").is_file():
        command = ["evolve", "--config", "study/memory_levers", "context=hint_compact", "--warm_start"]
        command += ["warm_start/memory_levers", "--seed_everything", str(seed), "--sampling_temperature", "0.3"]
        command += ["--rounds", str(ROUNDS), "--num_packs", "64", "--out", str(out)]
        subprocess.run([sys.executable, "-m", "cod_lightning", *command], check=True)
    if not (out / "evolution.json").is_file():
        return {}
    found = json.loads((out / "evolution.json").read_text())
    means = [one["mean_reward"] for one in found["candidates"]]
    return {"first": means[0], "best": max(means), "kept": len(means) - 1, "lifecycles": found["num_lifecycles"]}


def seed_of(run: Path) -> str:
    """As the folder of a job has it."""
    return run.name.rpartition("seed=")[2].partition("-")[0]


def measured(folder: Path) -> dict[str, Any]:
    """Each seed's curves by suite and condition (the warm start's from its own job), and tokens of solve prompts by position."""
    found: dict[str, Any] = {}
    for file in sorted(folder.glob("*/job.json")):
        evaluated = file.parent / "evaluation.json"
        if json.loads(file.read_text())["status"] != "finished" or not evaluated.is_file():
            continue
        seed = seed_of(file.parent)
        curves = found.setdefault(seed, {"curves": {}})["curves"]
        for name, suite in json.loads(evaluated.read_text())["suites"].items():
            of_suite = curves.setdefault(name, {})
            of_suite |= {one: [p["success"] for p in curve] for one, curve in suite["controls"].items()}
            if ",warm_start," not in file.parent.name:
                of_suite["trained"] = [p["success"] for p in suite["positions"]]
        lifecycles = file.parent / "lifecycles" / "test_packs_32_trained.jsonl"
        if lifecycles.is_file():
            found[seed]["prompt_tokens"] = prompt_tokens(lifecycles)
    return {seed: one for seed, one in found.items() if "prompt_tokens" in one}


def prompt_tokens(file: Path) -> list[float]:
    """Mean tokens of the first prompt of solve episodes, by position."""
    by_position: dict[int, list[int]] = {}
    for line in file.read_text().splitlines():
        for episode in json.loads(line)["episodes"]:
            if episode["kind"] == "solve" and episode["turns"]:
                by_position.setdefault(episode["position"], []).append(len(episode["turns"][0]["new_ids"]))
    return [mean(by_position[position]) for position in sorted(by_position)]


def facts_kept() -> dict[str, dict[str, float]]:
    """Success of scripted play in the second half of long packs of doors, by memory and number of doors."""
    found: dict[str, dict[str, float]] = {}
    for number in NUM_DOORS:
        env = Doors(num_doors=number, glimpses=2, protocol="compact")
        packs = [env.sample_pack(split=Split.TEST, index=i, num_tasks=NUM_TASKS) for i in range(NUM_PACKS)]
        for name, mechanism in BOUNDED.items():
            lives = play_reference(env, packs, ConditionKind.SCRIPTED, mechanism)
            solved = [bool(one.success) for life in lives for one in life.solves[NUM_TASKS // 2 :]]
            found.setdefault(name, {})[str(number)] = mean(solved)
    return found


def kept(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """What was found, by two names; what has no run is as it was before."""
    return {
        name: {**found.get(name, {}), **before.get(name, {}), **{k: v for k, v in found.get(name, {}).items() if v}}
        for name in {**before, **found}
    }


def retrieval_ms() -> dict[str, float]:
    """Milliseconds of a retrieval at 10,000 records of 30 words: the first, which makes the index, and the median of later ones."""
    rng = random.Random(0)
    words = [f"word{n}" for n in range(2000)]
    records = tuple(Record(n, " ".join(rng.choices(words, k=30)), "", "done", 1.0) for n in range(10_000))
    context, taken = EpisodesContext(capacity=10_000), []
    state = EpisodesState(records, (0.5,) * len(records), num_tasks=len(records))
    for n in range(51):
        began = time.perf_counter()
        context.prepare(state, "rules", records[n].task)
        taken.append(1000 * (time.perf_counter() - began))
    return {"first": taken[0], "later": median(taken[1:])}


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
            ]
            for memory, seeds in memories.items()
        ]
        head = ["memory", *map(str, range(4)), "context blanked", "of another pack", "warm start, T=0.3", "T=1"]
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
    rows = [
        [f"{memory}, {TITLES[world]}", credit, *(at(seeds, "held_out", "trained", slice(n, n + 1)) for n in range(4))]
        for (world, memory), by in ((tuple(name.split()), by) for name, by in results["credit"].items())
        for credit, seeds in by.items()
        if seeds
    ]
    lines += ["## Credit", "", CREDIT.strip(), "", table(["memory", "credit", *map(str, range(4))], rows), ""]
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
        [seed, f"{one['first']:.3f}", f"{one['best']:.3f}", f"{one['kept']} of {ROUNDS}", f"{one['lifecycles']}"]
        for seed, one in results["evolved"].items()
    ]
    head = ["seed", "nothing to begin with", "best text", "rewrites kept", "lifecycles played"]
    lines += ["## Without training", "", EVOLVED.strip(), "", table(head, rows), ""]
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
        f"{results['retrieval_ms']['first']:.0f} ms. The index is made anew once after each task.",
        "",
        "## Limits",
        "",
        LIMITS.strip(),
        "",
    ]
    return "\n".join(lines)


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
the same mechanism with the policy that was not trained by reinforcement.
"""
CREDIT = """
Success by position in packs of 4. `episode` credits each episode with its own reward and those of later ones, `trajectory` all of
a lifecycle with its sum.
"""
SELECTION = """
The `episodes` that were trained above with `select: utility`, played with the other ways to select four records; packs of 32, and
packs of 32 whose rule changes at task 16, where half of the records are then wrong.
"""
PARTS = (("packs_32", slice(16, None)), ("changed_32", slice(16, 24)), ("changed_32", slice(24, None)))
EVOLVED = """
`evolve` (reflective prompt evolution, in the manner of GEPA) rewrites the hint that every agent begins with; the policy is the warm
start at T=0.3 and does not change. Mean reward in 64 validation packs of the levers.
"""
LIMITS = """
- The scripted writers of notebook and skills keep facts in the order of the doors' numbers, and are refused what no longer fits:
  their rows show a full store that is not tended. The hint with a bound keeps the last doors. How well a trained policy tends a
  full one is not shown.
- Packs of 8, 16 and 32 with the same index begin with the same tasks, so these columns are not independent.
- Notebook and skills have most to learn: an update of several operations, and for skills a choice besides. With more updates
  the notebook gets further ([its page](notebook.md)); how far skills get is not measured.
- Rows are of several runs of this command at several commits; `acts` on FrozenLake was trained at two of them, to the same figures.
- The constant state and compacting are measured on [their own page](inside_an_episode.md).
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/sweeps/memory"))
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=list(WORLDS))
    parser.add_argument("--memories", nargs="+", choices=MEMORIES, default=list(MEMORIES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--page_only", action="store_true")
    args = parser.parse_args()
    chosen = [(world, memory) for world in args.worlds for memory in args.memories]
    again = [one for one in BY_TRAJECTORY if one in chosen]
    if not args.page_only:
        for world, memory in chosen:
            train(world, memory, args.seeds, args.runs)
        for world, memory in again:
            train(world, memory, args.seeds, args.runs, "trajectory")
    worlds: dict[str, Any] = {}
    for world, memory in chosen:
        worlds.setdefault(world, {})[memory] = measured(args.runs / named(world, memory, "episode"))
    credit = {
        f"{world} {memory}": {how: measured(args.runs / named(world, memory, how)) for how in ("episode", "trajectory")}
        for world, memory in again
    }
    selected = [world for world, memory in chosen if memory == "episodes"]
    selection = {
        world: {how: select(world, how, args.runs, play=not args.page_only) for how in SELECTIONS} for world in selected
    }
    before = json.loads(args.out.read_text()) if args.out.is_file() else {}
    evolved = {str(seed): evolve(seed, args.runs, play=not args.page_only) for seed in args.seeds}
    evolved = before.get("evolved", {}) | {seed: one for seed, one in evolved.items() if one}
    worlds, credit, selection = (
        kept(before.get(name, {}), found)
        for name, found in (("worlds", worlds), ("credit", credit), ("selection", selection))
    )
    results = {
        "worlds": worlds,
        "credit": credit,
        "selection": selection,
        "evolved": evolved,
        "facts": facts_kept(),
        "retrieval_ms": retrieval_ms(),
    }
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(
        page(results, "PYTHONPATH=. python tests/soak/memory.py --out docs/results/memory.json")
    )
    plot(results["facts"], args.out.with_suffix(".svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
