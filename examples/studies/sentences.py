"""A policy from nothing in the sentences that real checkpoints get: warm start, training and controls, one run a seed.

    PYTHONPATH=. python examples/studies/sentences.py --runs runs/sentences [--worlds levers lake] [--seeds 1 2 3] [--page_only]

Every run is `python -m cod_lightning fit --config CONFIG --seed_everything SEED` in a process of its own,
timed from outside with its warm start. Finished runs are kept, so that the command may be stopped at any time. It writes
`docs/results/sentences.json` and `sentences.md`; runs that the folder lacks stay in the JSON as they were.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from cod_lightning.envs.answers import code_of
from cod_lightning.envs.frozen_lake.policies import LakeSeen
from cod_lightning.envs.frozen_lake.wording import NaturalLake
from cod_lightning.envs.levers.wording import NaturalLevers
from cod_lightning.evaluation.packs_file import read_packs
from cod_lightning.markdown import table
from cod_lightning.types import Message, Role
from examples.studies.generalisation import interval, spelled, unspelled

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "docs" / "results" / "sentences.json"
SUITE = "held_out"
NAMES = {
    "trained": "trained, T=1",
    "blanked_context": "the same, context blanked",
    "warm_start": "warm start, T=1",
    "warm_start_t0.3": "warm start, T=0.3",
    "scripted": "scripted player",
}
POLICIES = "warm_start", "warm_start_t0.3", "trained"
SHARES = {
    "wants": "first answers that want what the task asks",
    "looks_up": "of those the context answers, looked up",
    "notes": "facts shown that are noted",
}


@dataclass(frozen=True)
class World:
    """One that is learnt in sentences."""

    title: str
    wording: NaturalLevers | NaturalLake
    wants: re.Pattern[str]
    """Finds what an answer wants."""
    asked: Callable[[str], Collection[str]]
    """What a task's first observation asks for: any of these."""


WORLDS = {
    "levers": World(
        "Levers", NaturalLevers(), re.compile(r"colour is (\w+)"), lambda shown: [NaturalLevers().goal_of(shown)]
    ),
    "lake": World(
        "FrozenLake-Obscure",
        NaturalLake(),
        re.compile(r"I want to go (\w+)"),
        lambda shown: LakeSeen.of([Message(Role.SYSTEM, ""), Message(Role.USER, shown)], NaturalLake()).forward(),
    ),
}


def command(world: str, seed: int) -> list[str]:
    """That trains and tests."""
    config = {"levers": "experiment/sentences_levers", "lake": "examples/studies/sentences_lake.yaml"}[world]
    return ["-m", "cod_lightning", "fit", "--config", config, "--seed_everything", str(seed)]


def run(world: str, seed: int, folder: Path) -> None:
    """Train where it is not finished; what came out stays in the folder, with its seconds in `seconds.json`."""
    if (folder / "seconds.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, *command(world, seed), "--torch_threads", "1"]
    argv += ["--trainer.default_root_dir", str(folder / "run"), "--overwrite", "true"]
    environment = os.environ | {"COD_LIGHTNING_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    begun = time.perf_counter()
    with (folder / "log.txt").open("w") as log:
        status = subprocess.run(argv, cwd=ROOT, env=environment, stdout=log, stderr=log).returncode
    if status:
        raise SystemExit(f"{' '.join(argv)} failed:\n{(folder / 'log.txt').read_text()[-3000:]}")
    (folder / "seconds.json").write_text(json.dumps(round(time.perf_counter() - begun)))


def record(world: World, folder: Path) -> dict[str, Any]:
    """What the page tells of a finished run."""
    success = {}
    for name in NAMES:
        outcomes = read_packs(folder / "run" / "evaluation_packs.parquet", SUITE, name)
        assert outcomes is not None, f"{folder}: {name}"
        success[name] = spelled(outcomes.success)
    lifecycles = folder / "run" / "lifecycles"
    said = {name: shares(world, lifecycles / f"test_{SUITE}_{name}.jsonl") for name in POLICIES}
    return {"seconds": json.loads((folder / "seconds.json").read_text()), "success": success, "shares": said}


def hidden(folder: Path) -> str:
    """What each pack of a finished run's test hides, a number for each rule."""
    outcomes = read_packs(folder / "run" / "evaluation_packs.parquet", SUITE, "trained")
    assert outcomes is not None, folder
    numbers = {rule: str(n) for n, rule in enumerate(dict.fromkeys(outcomes.rules))}
    return " ".join(numbers[rule] for rule in outcomes.rules)


def shares(world: World, lifecycles: Path) -> dict[str, float]:
    """Of a test's lifecycles: what `SHARES` names.

    Where an answer wants what is asked and the context names the code for it, it is looked up if it is that code. A fact is
    shown in any observation or feedback of a task whose context lacks it.
    """
    wording = world.wording
    wants: list[bool] = []
    looked: list[bool] = []
    noted: list[bool] = []
    for line in lifecycles.read_text().splitlines():
        for solve, update in pairwise(json.loads(line)["episodes"]):
            if (solve["kind"], update["kind"]) != ("solve", "update"):
                continue
            first, known = solve["turns"][0], wording.facts.parse(solve["context_before"])
            said = world.wants.search(first["response"])
            wanted = said[1] if said and said[1] in world.asked(first["observation"]) else ""
            wants.append(bool(wanted))
            if wanted in known.values():
                looked.append(known.get(code_of(first["response"], wording.facts.noun, 4)[0]) == wanted)
            seen = wording.facts.parse("\n".join([*(one["observation"] for one in solve["turns"]), solve["feedback"]]))
            after = wording.facts.parse(update["context_after"]).items()
            noted += [fact in after for fact in seen.items() - known.items()]
    return {
        name: round(float(np.mean(one)), 4) if one else float("nan")
        for name, one in zip(SHARES, (wants, looked, noted), strict=True)
    }


def page(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = [
        "# Sentences on a laptop, measured",
        "",
        *ABOUT.strip().format(machine=results["machine"]).splitlines(),
        "",
    ]
    for world, unsorted in results["worlds"].items():
        runs = dict(sorted(unsorted.items()))
        success = {name: np.array([unspelled(one["success"][name]) for one in runs.values()]) for name in NAMES}
        lines += [
            f"## {WORLDS[world].title}",
            "",
            f"`python {' '.join(command(world, 1))}`, seeds {', '.join(runs)} "
            f"({', '.join(str(one['seconds']) for one in runs.values())} s):",
            "",
        ]
        rules = results["rules"][world].split()
        lines += [table(["policy", "0", "3"], _by_position(success, rules)), "", *_reading(runs, success, rules), ""]
    return "\n".join(
        [*lines, *SEEN.strip().splitlines(), *LEARNABLE.strip().splitlines(), "", *LIMITS.strip().splitlines(), ""]
    )


Success = dict[str, Float[np.ndarray, "S P N"]]
"""By condition: of every seed, pack and position."""


def _by_position(success: Success, rules: Sequence[str]) -> list[list[str]]:
    return [[NAMES[name], *(interval(of[:, :, n], rules) for n in (0, -1))] for name, of in success.items()]


def _reading(runs: dict[str, Any], success: Success, rules: Sequence[str]) -> list[str]:
    """All seeds, and each, in words."""
    transfer, *over = (interval(_more(success, than), rules) for than in ("blanked_context", *POLICIES[:2]))
    each = [{name: values[n : n + 1] for name, values in success.items()} for n in range(len(runs))]
    seeds = ("; ".join(interval(_more(one, than), rules) for one in each) for than in ("blanked_context", POLICIES[1]))
    return [
        "In the tasks after the first:",
        "",
        f"- *Transfer*, success less that with the context blanked: {transfer}.",
        "- Trained at T=1 less its warm start at T=1 {}, at T=0.3 {}.".format(*over),
        *("- By seed, {1}: {0}.".format(*one) for one in zip(seeds, ("transfer", "less T=0.3"), strict=True)),
    ]


def _more(success: Success, than: str) -> Float[np.ndarray, "S P"]:
    """Success of the trained policy in tasks after the first, less that of another."""
    return (success["trained"] - success[than])[:, :, 1:].mean(2)


ABOUT = """
**Do the prompts, parsers and lengths that real checkpoints get train from nothing?** A policy of 2.2 million parameters, whose
tokenizer is made of the world's own sentences, is trained by demonstrations and then by reward, in the natural protocol.

    PYTHONPATH=. python examples/studies/sentences.py --runs runs/sentences

{machine}, one core a run. 128 held-out packs, 95 % intervals over seeds and 24 hidden orders with their
packs (one seed: over orders). Positions, and shares of facts looked up and noted: [sentences.json](sentences.json).
"""
SEEN = """
- **Each of three seeds learns levers**; over the three the interval of transfer just holds 0. **Two of three learn FrozenLake**: of
  the third's first answers .34 want a way that leads forward, and of guesses .30 (with `num_updates: 1800` .73).
- **Training adds no more than a lower temperature does**, but for the seed of levers whose warm start looked up too little.
"""
LEARNABLE = """
- **What made it learnable**, likely: a fact is said both ways (`- Lever 3 gives gold, so gold Lever 3`), an answer begins with its
  question, and demonstrations draw no conclusion that stands nowhere (`teacher.infers: false`).
"""
LIMITS = """
**Limits.** Demonstrations contained the skill in weak form: a writer that notes a fact as seen in 8 of 10 cases. The lake is small:
3x3, three steps, the player's cell in words. Wording, settings and rates were chosen on these seeds and packs.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=Path, required=True, help="Where runs are kept.")
    parser.add_argument("--worlds", nargs="+", choices=WORLDS, default=[*WORLDS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--page_only", action="store_true", help="Write JSON and page from finished runs.")
    args = parser.parse_args()
    results: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {"worlds": {}}
    for world, seed in product(args.worlds, args.seeds):
        folder = args.runs / f"{world}-{seed}"
        if not args.page_only:
            run(world, seed, folder)
        if (folder / "seconds.json").exists():
            results["worlds"].setdefault(world, {})[str(seed)] = record(WORLDS[world], folder)
            results.setdefault("rules", {})[world] = hidden(folder)
            results["machine"] = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
            OUT.write_text(json.dumps(results, indent=1) + "\n")
            OUT.with_suffix(".md").write_text(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
