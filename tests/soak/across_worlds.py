"""Trained in one world, tested in another: all pairs of ten compact worlds, all but one, and a few demonstrations of that one.

    PYTHONPATH=. python tests/soak/across_worlds.py --out docs/results/across_worlds.json
        [--trained_on levers doors ...] [--left_out levers ...] [--taught levers ...] [--seeds 1 2 3] [--page_only]

One vocabulary has the words of all ten. A cell warm-starts a policy on demonstrations of one world, or of all but one, trains it
there by reinforcement learning and tests it in all ten. A world that was left out is then taught by a few demonstrations, to the
policy of the others and to one of random weights (`--taught`). Cells are kept under `--runs`: a finished one is skipped; cells that
the folder lacks stay in the JSON as they were. `--page_only` trains nothing.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from jaxtyping import Float

from cod_lightning.contexts import HintContext
from cod_lightning.envs.base import TextEnv
from cod_lightning.evaluation.condition_kinds import ConditionKind
from cod_lightning.evaluation.packs_file import read_packs
from cod_lightning.evaluation.references import play_reference, summarise
from cod_lightning.evaluation.suite import Suite
from cod_lightning.markdown import table
from tests.soak.generalisation import Cells, interval, lives, parsed, transfers, written

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "PYTHONPATH=. python tests/soak/across_worlds.py --out docs/results/across_worlds.json"
WORLDS = {
    "lake 3x3": "frozen_lake_3x3",
    "lake 4x4": "frozen_lake_4x4",
    "levers": "levers",
    "doors": "doors",
    "alchemy": "alchemy_compact",
    "apps": "apps_compact",
    "terminal": "terminal_compact",
    "clinic": "learn2ask_compact",
    "control": "control_compact",
    "pde": "pde_compact",
}
"""Our names of compact worlds, and the files of `configs/env` that they are. In grid every sensible policy succeeds."""
LEFT_OUT = ("levers", "alchemy", "lake 3x3")
ELSEWHERE = ("doors", "lake 3x3")
"""Worlds whose policies are taught a world that was left out, beside that of all the others."""
NUM_PACKS, NUM_TASKS = 256, 4
FEW = (100, 300)
"""Numbers of updates, of three demonstrated packs each, by which a world that was left out is taught."""
CONDITIONS = {"own": "trained", "own_blanked": "blanked_context"}
"""Our name of a condition -> its name in a folder's outcomes."""
SHOWN = (("lake 3x3", "lake 4x4"), ("levers", "doors"), ("doors", "levers"), ("all but levers", "levers"))
"""Cells and the worlds in which a sample shows them."""
LAST = "report.html"
"""What a finished run writes last."""
Words = dict[str, dict[str, dict[str, list[float]]]]
"""Name of a cell -> seed -> world tested -> share of turns, and of words of notes, that are in that world's words."""


def key(name: str) -> str:
    """The name as part of paths and keys."""
    return name.replace(" ", "_")


def all_but(world: str) -> str:
    """The name of the cell that is trained on all others."""
    return f"all but {world}"


def trained_on(name: str) -> list[str]:
    """The worlds of a cell's training."""
    return [name] if name in WORLDS else [one for one in WORLDS if all_but(one) != name]


def after(world: str, updates: int, before: str = "") -> str:
    """The name of the cell in which a world is taught, to the policy of the cell `before` or to random weights."""
    return f"few_{updates}-{world}-{before}"


def begins(world: str) -> list[str]:
    """The cells whose policies are taught a world; the empty name for random weights."""
    return ["", all_but(world), *(one for one in ELSEWHERE if one != world)]


def configured(recipe: str, worlds: Sequence[str], data: dict[str, Any], **more: Any) -> str:
    """A config whose packs come from these worlds, but for one in a billion, in the words of all ten."""
    defaults = [{f"/env@data.env.init_args.worlds.{key(one)}": group} for one, group in WORLDS.items()]
    weights = {key(one): 1.0 if one in worlds else 1e-9 for one in WORLDS}
    env = {"class_path": "cod_lightning.envs.mixture.Mixture", "init_args": {"weights": weights}}
    content = {"data": {"env": env, "max_new_tokens": 16, **data}, **more}
    return yaml.safe_dump({"defaults": [{"/recipe": recipe}, *defaults, "_self_"], **content}, sort_keys=False)


def suites(worlds: Sequence[str], **more: Any) -> list[dict[str, Any]]:
    """Held-out packs of each of these worlds."""
    played = {"num_packs": NUM_PACKS, "controls": ["blanked_context"], "warm_start_temperatures": [], **more}
    return [{"name": key(one), "env": f"${{data.env.init_args.worlds.{key(one)}}}", **played} for one in worlds]


def cod(folder: Path, seed: int, command: str, *more: str) -> None:
    """A command of the project on the folder's config."""
    argv = [sys.executable, "-m", "cod_lightning", command, "--config", str(folder / "run.yaml"), *more]
    argv += ["--seed_everything", str(seed), "--torch_threads", "1", "--trainer.default_root_dir", str(folder / "run")]
    with (folder / "out.txt").open("w") as out:
        subprocess.run(argv, check=True, cwd=ROOT, stdout=out)


def begun(name: str, seed: int, runs: Path) -> Path | None:
    """The folder of a cell, made if need be; none for a finished one."""
    folder = (runs / f"{key(name)}-{seed}").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    return None if (folder / "run" / LAST).is_file() else folder


def train(name: str, seed: int, runs: Path) -> None:
    """Warm-start and train a policy in the worlds of a cell, and test it in all."""
    if not (folder := begun(name, seed, runs)):
        return
    worlds, start = trained_on(name), folder / "warm_start.yaml"
    shown = {"num_updates": 800, "num_packs": 800} if name in WORLDS else MANY
    start.write_text(configured("tiny_warm_start", worlds, shown))
    rest = {"warm_start": str(start), "model": {"lr": 2e-3}, "trainer": {"max_epochs": 2}}
    (folder / "run.yaml").write_text(
        configured("tiny", worlds, {"val_packs": 8, "suites": suites(list(WORLDS))}, **rest)
    )
    cod(folder, seed, "fit", "--overwrite", "true")


MANY = {"num_updates": 1000, "packs_per_update": 6, "num_packs": 3000}
"""Demonstrations of nine worlds."""


def teach(world: str, updates: int, before: str, seed: int, runs: Path) -> None:
    """Show so many demonstrations of a world to the policy of a cell, or to random weights, and test it there at T=0.3."""
    if not (folder := begun(after(world, updates, before), seed, runs)):
        return
    weights: dict[str, Any] = {}
    if before:
        run = (runs / f"{key(before)}-{seed}").resolve()
        if not (run / "policy").exists():
            last = str(run / "run" / "checkpoints" / "last.ckpt")
            argv = [sys.executable, "-m", "cod_lightning", "export", "--ckpt_path", last, "--out", str(run / "policy")]
            subprocess.run(argv, check=True, cwd=ROOT)
        weights = {"model": {"policy": {"init_args": {"weights": str(run / "policy")}}}}
    start = folder / "warm_start.yaml"
    shown = {"num_updates": updates, "num_packs": 3 * updates}
    start.write_text(configured("tiny_warm_start", [world], shown, **weights))
    tested = {"suites": suites([world], temperature=0.3)}
    (folder / "run.yaml").write_text(configured("tiny", [world], tested, warm_start=str(start)))
    cod(folder, seed, "test")


def measured(runs: Path) -> tuple[Cells, Words]:
    """The outcomes of every finished cell, and the words that it spoke."""
    found: Cells = {}
    words: Words = {}
    names = {key(one): one for one in (*WORLDS, *map(all_but, WORLDS))}
    names |= {key(one): one for of, n in product(WORLDS, FEW) for one in (after(of, n, b) for b in begins(of))}
    for done in sorted(runs.glob(f"*/run/{LAST}")):
        name, _, seed = done.parents[1].name.rpartition("-")
        for world in WORLDS:
            file = done.parent / "lifecycles" / f"test_{key(world)}_{CONDITIONS['own']}.jsonl"
            if not file.is_file():
                continue
            for condition, played in CONDITIONS.items():
                outcomes = read_packs(done.parent / "evaluation_packs.parquet", key(world), played)
                assert outcomes is not None, f"{done.parent}: {world} {played}"
                cell = found.setdefault(names[name], {}).setdefault(seed, {}).setdefault(world, {})
                cell[condition] = outcomes.success
            shares = spoken(file.read_text(), frozenset(world_of(world).words()))
            words.setdefault(names[name], {}).setdefault(seed, {})[world] = shares
    return found, words


def spoken(lifecycles: str, words: frozenset[str]) -> list[float]:
    """Of lifecycles, one a line: the share of turns said in these words alone, and of words of notes that are of these."""
    episodes = [one for line in lifecycles.splitlines() for one in json.loads(line)["episodes"]]
    turns = [turn["response"].split() for one in episodes if one["kind"] == "solve" for turn in one["turns"]]
    notes = [word for one in episodes if one["kind"] == "update" for word in one["context_after"].split()]
    shares = [words.issuperset(turn) for turn in turns if turn], [word in words for word in notes]
    return [round(float(np.mean(one)), 4) if one else 0.0 for one in shares]


@cache
def world_of(name: str) -> TextEnv:
    """The world."""
    spec = yaml.safe_load((ROOT / "configs" / "env" / f"{WORLDS[name]}.yaml").read_text())
    module, _, of = spec["class_path"].rpartition(".")
    return getattr(import_module(module), of)(**spec["init_args"])


def by_chance(name: str) -> list[float]:
    """Success by position of valid answers at random, in the packs of the tests."""
    packs = Suite(name=key(name), num_packs=NUM_PACKS, pack_size=NUM_TASKS).packs(world_of(name))
    played = list(play_reference(world_of(name), packs, ConditionKind.RANDOM, HintContext("compact")))
    return [round(one.mean, 4) for one in summarise(ConditionKind.RANDOM, played).success]


def paired(cells: dict[str, dict[str, Any]], world: str) -> Float[np.ndarray, "S P"]:
    """Gain from the first task to the last of every seed and pack, less that of the same policy with its contexts blanked."""
    of = [one[world] for one in cells.values()]
    return np.array([np.subtract(*(one[name][:, -1] - one[name][:, 0] for name in CONDITIONS)) for one in of])


def curves(cells: dict[str, dict[str, Any]], world: str, condition: str) -> Float[np.ndarray, "S P N"]:
    """Success of every seed, pack and position."""
    return np.array([one[world][condition] for one in cells.values()])


def row(of: Float[np.ndarray, "S P N"]) -> list[str]:
    """Success by position, and the gain from the first to the last."""
    return [*(interval(of[:, :, n]) for n in range(NUM_TASKS)), interval(of[:, :, -1] - of[:, :, 0])]


def solved(cells: dict[str, dict[str, Any]], world: str) -> bool:
    """Whether any task was, under any condition."""
    return any(curves(cells, world, condition).any() for condition in CONDITIONS)


def matrix(results: Cells, names: Sequence[str], of_cells: Callable[[Any, str], Float[np.ndarray, "S P"]]) -> str:
    """A row for each cell, a column for each world tested."""
    rows: list[list[str]] = []
    for name in names:
        of = (interval(of_cells(results[name], one)) if solved(results[name], one) else "none" for one in WORLDS)
        rows.append([name, str(len(results[name])), *of])
    return table(["trained on", "seeds", *WORLDS], rows)


def by_position(results: Cells, names: Sequence[str], chance: dict[str, list[float]]) -> str:
    """Success by position wherever a task was solved."""
    rows: list[list[str]] = []
    for world in WORLDS:
        rows.append([world, "valid answers at random", "", *(f"{one:.3f}" for one in chance[world]), ""])
        for name in names:
            if solved(results[name], world):
                for condition, title in zip(CONDITIONS, ("own", "blanked"), strict=True):
                    rows.append(["", name, title, *row(curves(results[name], world, condition))])
    return table(["tested on", "trained on", "contexts", *map(str, range(NUM_TASKS)), "gain"], rows)


def shares(words: Words, names: Sequence[str], which: int) -> str:
    """A row for each cell, a column for each world tested: a share of `Words`, mean over seeds."""
    of = [
        [name, *(f"{np.mean([one[to][which] for one in words[name].values()]):.2f}" for to in WORLDS)] for name in names
    ]
    return table(["trained on", *WORLDS], of)


def lessons(results: Cells) -> str:
    """What few demonstrations make of a policy of the other worlds, and of random weights."""
    rows: list[list[str]] = []
    for world, updates in product(WORLDS, FEW):
        new = results.get(after(world, updates), {})
        for before in begins(world):
            cells = results.get(after(world, updates, before), {})
            if cells:
                of = curves(cells, world, "own")
                title = f"{before}, trained" if before else "random weights"
                rows.append([world, str(3 * updates), title, str(len(cells)), *row(of), interval(paired(cells, world))])
            if before and (seeds := sorted(set(cells) & set(new))):
                known, other = ({seed: of[seed] for seed in seeds} for of in (cells, new))
                less = curves(known, world, "own") - curves(other, world, "own")
                gains = paired(known, world) - paired(other, world)
                rows.append(["", "", "less random weights", str(len(seeds)), *row(less), interval(gains)])
    head = ["taught", "packs", "before", "seeds", *map(str, range(NUM_TASKS)), "gain", "less blanked"]
    return table(head, rows)


def page(results: Cells, words: Words, chance: dict[str, list[float]], samples: Sequence[str]) -> str:
    """The results as Markdown."""
    alone, mixed = ([one for one in names if one in results] for names in (WORLDS, map(all_but, WORLDS)))
    both = [*alone, *mixed]
    lines = ["# Trained in one world, tested in another", "", f"`{COMMAND}` writes this page.", ""]
    lines += [*ABOUT.strip().splitlines(), "", *SEEN.strip().splitlines(), ""]
    lines += ["## Gain, less that with blanked contexts", "", matrix(results, both, paired), ""]
    shown = matrix(results, both, partial(transfers, condition="own"))
    lines += ["## Success in tasks 1 to 3, less that with blanked contexts", "", shown, ""]
    lines += ["## Success by position", "", *POSITIONS.strip().splitlines(), "", by_position(results, both, chance), ""]
    lines += ["## Turns in the words of the world tested", "", shares(words, both, 0), ""]
    lines += ["## Words of notes that are words of the world tested", "", shares(words, both, 1), ""]
    lines += [
        "## A few demonstrations of the world left out",
        "",
        *TAUGHT.strip().splitlines(),
        "",
        lessons(results),
        "",
    ]
    return "\n".join([*lines, "## Samples", "", *SAMPLES.strip().splitlines(), "", *samples])


ABOUT = """
Ten worlds in compact words, one vocabulary of them all, and one world at a time to train on: a short warm start on its
demonstrations (800 updates of three packs), then 20 rollouts of 256 lifecycles. Every policy (0.2 million parameters) then plays
256 held-out packs of 4 of each of the ten at T=1, without further training. *All but* a world: 1,000 updates of six packs of
the nine others, then as many rollouts. *Gain* is success in the last task less that in the first; the same policy with its
contexts blanked plays the same packs. Intervals (95 %) are over seeds and packs, with a single seed over packs alone. *None*:
not one task was solved. Worlds without a row have not been trained on yet. The world grid is left out: every sensible policy
succeeds there.
"""
SEEN = """
## What it shows

**Between worlds that share their words it carries over.** The words of lake 3x3 are among those of lake 4x4. Trained on 4x4 the
policy plays 3x3 as well as one trained there: .69 in the last task, after .68, and its contexts are worth .19 [.15, .23] in
tasks 1 to 3, after .24 [.19, .28]. The other way round, where a quarter of the words was never trained, they are worth .08 [.04,
.12] in tasks 1 to 3; in the gain to the last task alone, .06 [-.01, .13], nothing is shown.

**Where words differ nothing does.** A policy trained on one of the other worlds solves not one task of 256 packs elsewhere, far
less than valid answers at random. It answers in the words of its own world, and all is malformed: hardly a turn in a hundred is
in those of the world tested, and feedback then has nothing to note. Notes hold words of the other world only where both have
them: .72 of the words for levers in doors (`1=gold`), .24 to .63 between levers and lakes (`1=?`), all of them made up. A word
that was never trained has an embedding that says nothing, and as the embeddings are the output layer, training makes it
improbable; that this is the reason was not tested apart.

**Training on all but levers is no help with levers**: one task of 1,024 is solved. Nine worlds in so short a training are also
less well learnt: contexts are worth something in control and terminal, in alchemy they do harm, in the six others nothing is shown.

LESSONS

**Where words are no obstacle**, looking things up and the habit of noting carry over: [carry-over](generalisation.md),
[a habit](habit.md). There the embeddings stay the random vectors that they begin as, and the policy begins as a copier.

Not measured yet: other rows, all but another world, more than one seed, longer training. The script has them.
"""
POSITIONS = """
Pairs in which no task was solved are left out. Gains are from the first task to the last.
"""
TAUGHT = """
So many packs of a world are demonstrated, each once and nothing else, to policies that were trained without it and to one of random
weights; then they play it at T=0.3, where [warm starts](quickstart.md) do best. Differences are on the same packs; *less blanked*
is the gain less that with blanked contexts.
"""
SAMPLES = """
The first lifecycle of some pairs, seed 1.
"""


def sampled(runs: Path) -> list[str]:
    """The first lifecycle of each of `SHOWN`, as a table, where the cell is there."""
    lines: list[str] = []
    for name, world in SHOWN:
        file = runs / f"{key(name)}-1" / "run" / "lifecycles" / f"test_{key(world)}_{CONDITIONS['own']}.jsonl"
        if file.is_file():
            lines += [f"Trained on {name}, tested on {world}:", "", *lives(file, 1)]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/across_worlds"))
    parser.add_argument("--trained_on", nargs="*", default=list(WORLDS), choices=WORLDS)
    parser.add_argument("--left_out", nargs="*", default=list(LEFT_OUT), choices=WORLDS)
    parser.add_argument("--taught", nargs="*", default=list(LEFT_OUT), choices=WORLDS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--page_only", action="store_true")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    for seed in () if args.page_only else args.seeds:
        for name in (*args.trained_on, *map(all_but, args.left_out)):
            train(name, seed, args.runs)
        for world, updates in product(args.taught, FEW):
            for before in begins(world):
                teach(world, updates, before, seed, args.runs)
    old = json.loads(args.out.read_text()) if args.out.is_file() else {"success": {}, "words": {}, "samples": []}
    found, words = measured(args.runs)
    results = parsed(old["success"])
    for name, seeds in found.items():
        results[name] = dict(sorted((results.get(name, {}) | seeds).items()))
    words = {name: old["words"].get(name, {}) | words.get(name, {}) for name in results}
    chance = old.get("chance") or {one: by_chance(one) for one in WORLDS}
    samples = sampled(args.runs) or old["samples"]
    content = {"success": written(results), "words": words, "chance": chance, "samples": samples}
    args.out.write_text(json.dumps(content, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(page(results, words, chance, samples))
    return 0


if __name__ == "__main__":
    sys.exit(main())
