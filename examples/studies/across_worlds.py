"""Trained in one world, tested in another: all pairs of ten compact worlds, all but one, and a few demonstrations of that one.

    PYTHONPATH=. python examples/studies/across_worlds.py --out docs/results/across_worlds.json
        [--trained_on levers doors ...] [--left_out levers ...] [--taught levers ...] [--seeds 1 2 3] [--page_only]

One vocabulary has the words of all ten. A cell warm-starts a policy on demonstrations of one world, or of all but one, trains it
there by reinforcement learning and tests it in all ten. A world that was left out is then taught by a few demonstrations, to the
policy of the others and to one of random weights (`--taught`). Cells are kept under `--runs`: a finished one is skipped; cells that
the folder lacks stay in the JSON as they were. `--page_only` trains nothing.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from jaxtyping import Float
from safetensors.torch import load_file, save_file

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Words
from cod_lightning.envs.base import HiddenRules, Reference, TextEnv, Vocabulary, beside
from cod_lightning.evaluation.packs_file import read_packs
from cod_lightning.evaluation.references import play_reference, summarise
from cod_lightning.evaluation.suite import Suite
from cod_lightning.models import TinyPolicy
from cod_lightning.types import Pack
from examples.studies.across_worlds_page import (
    CONDITIONS,
    FEW,
    NEW,
    NUM_TASKS,
    WORLDS,
    after,
    all_but,
    begins,
    page,
)
from examples.studies.across_worlds_page import (
    Words as WordCounts,
)
from examples.studies.generalisation import Cells, lives, parsed, written

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = ("levers", "alchemy", "lake 3x3")
NUM_PACKS = 256
SHOWN = (("lake 3x3", "lake 4x4"), ("levers", "doors"), ("doors", "levers"), ("all but levers", "levers"))
"""Cells and the worlds in which a sample shows them."""
LAST = "report.html"
"""What a finished run writes last."""


def key(name: str) -> str:
    """The name as part of paths and keys."""
    return name.replace(", ", " ").replace(" ", "_")


def trained_on(name: str) -> list[str]:
    """The worlds of a cell's training."""
    return [name] if name in WORLDS else [one for one in WORLDS if all_but(one) != name]


def configured(worlds: Sequence[str], data: dict[str, Any], **more: Any) -> str:
    """A config whose packs come from these worlds, but for one in a billion, in the words of all ten."""
    defaults = [{f"/env@data.env.init_args.worlds.{key(one)}": group} for one, group in WORLDS.items()]
    weights = {key(one): 1.0 if one in worlds else 1e-9 for one in WORLDS}
    env = {"class_path": "cod_lightning.envs.mixture.Mixture", "init_args": {"weights": weights}}
    content = {"data": {"env": env, "max_new_tokens": 16, **data}, **more}
    return yaml.safe_dump({"defaults": [{"/recipe": "tiny"}, *defaults, "_self_"], **content}, sort_keys=False)


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
    worlds = trained_on(name)
    shown = {"num_updates": 800, "num_packs": 800} if name in WORLDS else MANY
    rest = {"warm_start": shown, "model": {"lr": 2e-3}, "trainer": {"max_epochs": 2}}
    (folder / "run.yaml").write_text(configured(worlds, {"val_packs": 8, "suites": suites(list(WORLDS))}, **rest))
    cod(folder, seed, "fit", "--overwrite", "true")


MANY = {"num_updates": 1000, "packs_per_update": 6, "num_packs": 3000}
"""Demonstrations of nine worlds."""


def exported(cell: Path) -> Path:
    """The folder of a finished cell's policy."""
    run = cell.resolve()
    if not (run / "policy").exists():
        last = str(run / "run" / "checkpoints" / "last.ckpt")
        argv = [sys.executable, "-m", "cod_lightning", "export", "--ckpt_path", last, "--out", str(run / "policy")]
        subprocess.run(argv, check=True, cwd=ROOT)
    return run / "policy"


def renewed(policy: Path, words: Sequence[str], to: Path, seed: int) -> Path:
    """A copy of the policy in which the embeddings of these words are as those of random weights."""
    shutil.copytree(policy, to, dirs_exist_ok=True)
    state = load_file(to / "model.safetensors")
    table = state["model.embed_tokens.weight"]
    made = torch.randn(len(words), table.shape[1], generator=torch.Generator().manual_seed(seed))
    table[token_ids(words)] = 0.5 * table.shape[1] ** -0.5 * made
    save_file(state, to / "model.safetensors", metadata={"format": "pt"})
    return to


def teach(world: str, updates: int, before: str, seed: int, runs: Path) -> None:
    """Show so many demonstrations of a world to the policy of a cell, or to random weights, and test it there at T=0.3."""
    if not (folder := begun(after(world, updates, before), seed, runs)):
        return
    weights: dict[str, Any] = {}
    if before:
        policy = exported(runs / f"{key(before.removesuffix(NEW))}-{seed}")
        if before.endswith(NEW):
            policy = renewed(policy, words_but(world, trained_on(before.removesuffix(NEW))), folder / "policy", seed)
        weights = {"policy": {"weights": str(policy)}}
    shown = {"num_updates": updates, "num_packs": 3 * updates, **weights}
    tested = {"suites": suites([world], temperature=0.3)}
    (folder / "run.yaml").write_text(configured([world], tested, warm_start=shown))
    cod(folder, seed, "test")


def measured(runs: Path) -> tuple[Cells, WordCounts]:
    """The outcomes of every finished cell, and the words that it spoke."""
    found: Cells = {}
    words: WordCounts = {}
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
            counts = spoken(file.read_text(), frozenset(beside(world_of(world), Vocabulary).words()))
            if (last := done.parent / "checkpoints" / "last.ckpt").is_file():
                counts.append(alike(embedded(last, words_but(world, trained_on(names[name])))))
            words.setdefault(names[name], {}).setdefault(seed, {})[world] = counts
    return found, words


def spoken(lifecycles: str, words: frozenset[str]) -> list[float]:
    """Of lifecycles, one a line: the share of turns said in these words alone, and of words of notes that are of these."""
    episodes = [one for line in lifecycles.splitlines() for one in json.loads(line)["episodes"]]
    turns = [turn["response"].split() for one in episodes if one["kind"] == "solve" for turn in one["turns"]]
    notes = [word for one in episodes if one["kind"] == "update" for word in one["context_after"].split()]
    shares = [words.issuperset(turn) for turn in turns if turn], [word in words for word in notes]
    return [round(float(np.mean(one)), 4) if one else 0.0 for one in shares]


def words_but(world: str, worlds: Sequence[str]) -> list[str]:
    """The words of a world that these worlds do not have; all of them where they have them all."""
    known = {word for one in worlds for word in beside(world_of(one), Vocabulary).words()}
    own = beside(world_of(world), Vocabulary).words()
    return [word for word in own if word not in known] or list(own)


def token_ids(words: Sequence[str]) -> list[int]:
    """Of words in the vocabulary of all worlds."""
    every = [
        *(word for one in WORLDS for word in beside(world_of(one), Vocabulary).words()),
        *beside(HintContext("compact"), Words).words(),
    ]
    vocabulary = TinyPolicy().tokenizer(every).get_vocab()
    return [vocabulary[word] for word in words]


def embedded(checkpoint: Path, words: Sequence[str]) -> Float[np.ndarray, "W D"]:
    """The embeddings of words in a run's checkpoint."""
    state = torch.load(checkpoint, map_location="cpu", weights_only=False)["state_dict"]
    return state["model.model.embed_tokens.weight"][token_ids(words)].double().numpy()


def alike(vectors: Float[np.ndarray, "W D"]) -> float:
    """The mean cosine of two different ones."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    count = len(unit)
    return round(float(((unit @ unit.T).sum() - count) / (count * (count - 1))), 4)


CHANGED = {"lake 4x4": {"size_min": 4, "size_max": 4}}


@cache
def world_of(name: str) -> TextEnv:
    """The world."""
    spec = yaml.safe_load((ROOT / "configs" / "env" / f"{WORLDS[name]}.yaml").read_text())
    module, _, of = spec["class_path"].rpartition(".")
    return getattr(import_module(module), of)(**spec["init_args"] | CHANGED.get(name, {}))


def held_out(name: str) -> list[Pack]:
    """The packs of the tests."""
    return Suite(name=key(name), num_packs=NUM_PACKS, pack_size=NUM_TASKS).packs(world_of(name))


def by_chance(name: str) -> list[float]:
    """Success by position of valid answers at random, in the packs of the tests."""
    played = list(play_reference(world_of(name), held_out(name), Reference.RANDOM, HintContext("compact")))
    return [round(one.mean, 4) for one in summarise(played).success]


def hidden(name: str) -> str:
    """What each pack of the tests hides, a number for each rule."""
    rules = [beside(world_of(name), HiddenRules).hidden_rule(pack) for pack in held_out(name)]
    numbers = {rule: str(n) for n, rule in enumerate(dict.fromkeys(rules))}
    return " ".join(numbers[rule] for rule in rules)


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
    rules = old.get("rules") or {one: hidden(one) for one in WORLDS}
    samples = sampled(args.runs) or old["samples"]
    content = {"success": written(results), "words": words, "chance": chance, "rules": rules, "samples": samples}
    args.out.write_text(json.dumps(content, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(page(results, {one: of.split() for one, of in rules.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
