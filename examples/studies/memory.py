"""Memories compared: each is trained by `sweep` at equal sampled tokens, then deployed on longer packs and under a changed rule.

    PYTHONPATH=. python examples/studies/memory.py --out docs/results/memory.json [--worlds levers doors]
        [--seeds 1 2 3] [--page_only]

Runs `python -m cod_lightning sweep --config examples/studies/memory_WORLD.yaml context=MEMORY_compact seed_everything=SEEDS`
for each world and memory, each into a folder of its own under `--runs`; then skills and acts again with
`credit=TrajectoryCredit`, skills with the part `EntryUse` of the reward, `python -m cod_lightning test` of the trained
`episodes` with other retrievals, and `python -m cod_lightning evolve`. Finished runs are kept, so that the command goes on
where it was stopped. `--page_only` trains nothing. What has no run keeps what `--out` holds of it, or is listed as not
measured.
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

from cod_lightning.contexts import ContextMechanism, HintContext
from cod_lightning.contexts.records import Record
from cod_lightning.envs.base import Reference
from cod_lightning.envs.doors import Doors
from cod_lightning.evaluation.references import play_reference
from cod_lightning.methods.entry_use import EntryUse
from cod_lightning.methods.episodes import EpisodesContext, EpisodesState
from cod_lightning.methods.notebook import NotebookContext
from cod_lightning.methods.skills import SkillsContext
from cod_lightning.methods.transcript import TranscriptContext
from cod_lightning.types import Message, Split
from examples.studies.memory_page import NUM_DOORS, NUM_PACKS, NUM_TASKS, ROUNDS, page, plot

WITHIN = {"acts": ("program.every=null",), "constant_state": ("program.every=null",), "compacting": ()}
"""Memories that are written within tasks, and what each is chosen with besides."""
MEMORIES = ("hint", "notebook", "episodes", "transcript", "skills", *WITHIN)
WORLDS = ("levers", "doors", "many_doors", "frozen_lake_3x3")
_OPERATIONS = ("data.max_new_tokens=40",)
ROOM = {
    **dict.fromkeys(("notebook", "skills", "acts"), _OPERATIONS),
    "constant_state": ("data.max_new_tokens=24", "data.context.init_args.budget=16"),
}
"""With many doors: what a memory needs besides the facts that it may keep, of which a hint has 16."""
CREDITS = {
    "episode": (),
    "trajectory": ("credit=TrajectoryCredit",),
    "episode, use paid": (f"data.rewards={{use:{{class_path:{EntryUse.__module__}.EntryUse}}}}",),
}
"""Ways to credit, and what each is chosen with besides."""
AGAIN = {
    ("doors", "skills"): ("trajectory", "episode, use paid"),
    ("levers", "skills"): ("episode, use paid",),
    ("frozen_lake_3x3", "acts"): ("trajectory",),
}
"""Worlds and memories that are trained with other credit too."""
SELECTIONS = ("utility", "similarity", "random")
_ALONE = {"controls": [], "warm_start_temperatures": []}
HELD_OUT = {"name": "held_out", "num_packs": 512, **_ALONE}
_LONG = {"num_packs": 64, "pack_size": 32, **_ALONE}
LONG = [{"name": "packs_32", **_LONG}, {"name": "changed_32", **_LONG, "change_at": 16}]
"""Suites in which an agent has more records than a task is shown."""


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
    room = ROOM.get(memory, ()) if world == "many_doors" else ()
    choices = (*WITHIN.get(memory, ()), *CREDITS[credit], *room)
    seeded = f"seed_everything={','.join(map(str, seeds))}"
    out = ["--out", str(runs / named(world, memory, credit))]
    command = ["sweep", "--config", f"examples/studies/memory_{world}.yaml", f"context={memory}_compact", *choices]
    subprocess.run([sys.executable, "-m", "cod_lightning", *command, seeded, *out], check=True)


def random_weights(world: str, memory: str, seed: int, runs: Path, *, play: bool) -> list[float]:
    """Success in packs of 4 of a policy that was neither warm-started nor trained, by position; what was played is read again."""
    out = runs / f"{world}_{memory}_random_weights_{seed}"
    if play and not (out / "evaluation.json").is_file():
        command = [
            "test",
            "--config",
            f"examples/studies/memory_{world}.yaml",
            f"context={memory}_compact",
            *WITHIN.get(memory, ()),
        ]
        command += ["--warm_start", "null", "--seed_everything", str(seed), "--data.suites", json.dumps([HELD_OUT])]
        command += ["--trainer.default_root_dir", str(out)]
        subprocess.run([sys.executable, "-m", "cod_lightning", *command], check=True)
    if not (out / "evaluation.json").is_file():
        return []
    return [p["success"] for p in json.loads((out / "evaluation.json").read_text())["suites"]["held_out"]["positions"]]


def named(world: str, memory: str, credit: str) -> str:
    """Folder of the runs."""
    return f"{world}_{memory}" + ("" if credit == "episode" else f"_{credit.split()[-1]}")


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


def evolve(world: str, seed: int, runs: Path, *, play: bool) -> dict[str, Any]:
    """What came of evolving the hint that agents begin with, by a policy that is only warm-started."""
    out = runs / f"{world}_evolved_{seed}"
    if play and not (out / "context.yaml").is_file():
        command = ["evolve", "--config", f"examples/studies/memory_{world}.yaml", "context=hint_compact"]
        command += ["--seed_everything", str(seed), "--sampling_temperature", "0.3"]
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
        if not (json.loads(file.read_text())["finished"] and evaluated.is_file()):
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
            lives = play_reference(env, packs, Reference.SCRIPTED, mechanism)
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
    """Milliseconds of a retrieval at 10,000 records of 30 words: the first, which makes the index, and the median of later ones,
    before each of which a record came and the oldest went."""
    rng = random.Random(0)
    words = [f"word{n}" for n in range(2000)]
    made = [Record(n, " ".join(rng.choices(words, k=30)), "", "done", 1.0) for n in range(10_051)]
    context, taken = EpisodesContext(capacity=10_000), []
    for n in range(51):
        state = EpisodesState(tuple(made[n : n + 10_000]), (0.5,) * 10_000, num_tasks=10_000 + n)
        began = time.perf_counter()
        context.prepare(state, "rules", made[n + 99].task)
        taken.append(1000 * (time.perf_counter() - began))
    return {"first": taken[0], "later": median(taken[1:])}


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
    again = {one: ways for one, ways in AGAIN.items() if one in chosen}
    if not args.page_only:
        for world, memory in chosen:
            train(world, memory, args.seeds, args.runs)
        for (world, memory), ways in again.items():
            for way in ways:
                train(world, memory, args.seeds, args.runs, way)
    worlds: dict[str, Any] = {}
    for world, memory in chosen:
        worlds.setdefault(world, {})[memory] = measured(args.runs / named(world, memory, "episode"))
    credit = {
        f"{world} {memory}": {how: measured(args.runs / named(world, memory, how)) for how in ("episode", *ways)}
        for (world, memory), ways in again.items()
    }
    selected = [world for world, memory in chosen if memory == "episodes"]
    selection = {
        world: {how: select(world, how, args.runs, play=not args.page_only) for how in SELECTIONS} for world in selected
    }
    play = not args.page_only
    untrained: dict[str, Any] = {}
    for world, memory in chosen:
        curves = {str(seed): random_weights(world, memory, seed, args.runs, play=play) for seed in args.seeds}
        untrained.setdefault(world, {})[memory] = {seed: curve for seed, curve in curves.items() if curve}
    before = json.loads(args.out.read_text()) if args.out.is_file() else {}
    evolved = {
        world: {str(seed): evolve(world, seed, args.runs, play=play) for seed in args.seeds}
        for world, memory in chosen
        if memory == "hint"
    }
    trained = {
        "worlds": worlds,
        "random_weights": untrained,
        "credit": credit,
        "selection": selection,
        "evolved": evolved,
    }
    results = {
        **{name: kept(before.get(name, {}), found) for name, found in trained.items()},
        "deployed": json.loads((args.out.parent / "deploy_kills.json").read_text())["memories"],
        "stored": json.loads((args.out.parent / "store_sizes.json").read_text()),
        "facts": facts_kept(),
        "retrieval_ms": retrieval_ms(),
    }
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(
        page(results, "PYTHONPATH=. python examples/studies/memory.py --out docs/results/memory.json")
    )
    plot(results["facts"], args.out.with_suffix(".svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
