"""A policy from nothing in the sentences that real checkpoints get: warm start, training and controls, one run a seed.

    PYTHONPATH=. python tests/soak/sentences.py --runs runs/sentences [--worlds levers lake] [--seeds 1 2 3] [--page_only]

Every run is `python -m cod_lightning fit --config experiment/sentences_WORLD --seed_everything SEED` in a process of its own,
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
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from cod_lightning.envs.frozen_lake.policies import LakeSeen
from cod_lightning.envs.frozen_lake.wording import NaturalLake
from cod_lightning.envs.levers.wording import NaturalLevers
from cod_lightning.evaluation.packs_file import read_packs
from cod_lightning.markdown import table
from cod_lightning.types import Message, Role
from tests.soak.generalisation import interval, spelled, unspelled

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
        "Levers", NaturalLevers(), re.compile(r"so for (\w+)"), lambda shown: [NaturalLevers().goal_of(shown)]
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
    config = f"experiment/sentences_{world}"
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
                looked.append(known.get(wording.labels.code_of(first["response"])[0]) == wanted)
            seen = wording.facts.parse("\n".join([*(one["observation"] for one in solve["turns"]), solve["feedback"]]))
            after = wording.facts.parse(update["context_after"]).items()
            noted += [fact in after for fact in seen.items() - known.items()]
    return {
        name: round(float(np.mean(one)), 4) if one else float("nan")
        for name, one in zip(SHARES, (wants, looked, noted), strict=True)
    }


def page(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = [*ABOUT.strip().splitlines(), "", f"Measured on {results['machine']}.", "", *SEEN.strip().splitlines(), ""]
    for world, runs in results["worlds"].items():
        success = {name: np.array([unspelled(one["success"][name]) for one in runs.values()]) for name in NAMES}
        lines += [
            f"## {WORLDS[world].title}",
            "",
            f"`python {' '.join(command(world, 1))}`, seeds {', '.join(runs)}:",
            "",
        ]
        lines += [table(["policy", "0", "1", "2", "3"], _by_position(success)), "", *_reading(success), ""]
        lines += [table(["seed", "seconds", *_SEED], _by_seed(runs, success)), ""]
        rows = [
            [seed, NAMES[name], *(f"{one['shares'][name][of]:.2f}" for of in SHARES)]
            for seed, one in runs.items()
            for name in POLICIES
        ]
        lines += [table(["seed", "policy", *SHARES.values()], rows), ""]
    return "\n".join([*lines, *LEARNABLE.strip().splitlines(), "", *LIMITS.strip().splitlines(), ""])


Success = dict[str, Float[np.ndarray, "S P N"]]
"""By condition: of every seed, pack and position."""
_SEED = "success, T=1", "transfer", "less warm start, T=1", "less warm start, T=0.3"


def _by_position(success: Success) -> list[list[str]]:
    return [[NAMES[name], *(interval(of[:, :, n]) for n in range(of.shape[2]))] for name, of in success.items()]


def _reading(success: Success) -> list[str]:
    """All seeds in words."""
    gains = (interval(success[name][..., -1] - success[name][..., 0]) for name in ("trained", "blanked_context"))
    transfer, *over = (interval(_more(success, than)) for than in ("blanked_context", *POLICIES[:2]))
    return [
        "- *Gain*, from the first task to the last: {}; with the context blanked {}.".format(*gains),
        f"- *Transfer*, success in the tasks after the first less that with the context blanked: {transfer}.",
        "- Trained at T=1 less its warm start, in the tasks after the first: at T=1 {}, at T=0.3 {}.".format(*over),
    ]


def _more(success: Success, than: str) -> Float[np.ndarray, "S P"]:
    """Success of the trained policy in tasks after the first, less that of another."""
    return (success["trained"] - success[than])[:, :, 1:].mean(2)


def _by_seed(runs: dict[str, Any], success: Success) -> list[list[str]]:
    rows: list[list[str]] = []
    for n, (seed, one) in enumerate(runs.items()):
        of = {name: values[n : n + 1] for name, values in success.items()}
        curve = " ".join(f"{task:.2f}" for task in of["trained"][0].mean(0))
        less = [interval(_more(of, than)) for than in ("blanked_context", *POLICIES[:2])]
        rows.append([seed, str(one["seconds"]), curve, *less])
    return rows


ABOUT = """
# Sentences on a laptop, measured

Do the prompts, parsers, rewards and lengths that real checkpoints get train? A policy of 2.2 million parameters, whose tokenizer
is made of the world's own sentences, meets levers in the natural protocol from nothing: demonstrations, then CoD-Train. Success
by position is on 128 held-out packs, the same for all policies; intervals (95 %) are over seeds and packs, with a single seed
over packs alone. Seconds are those of one process on one core of a shared machine, warm start and final tests included.

`PYTHONPATH=. python tests/soak/sentences.py --runs runs/sentences` writes this page.
"""
SEEN = """
## What it shows

**Two seeds of three learn it.** In seeds 1 and 2 success rises on held-out packs, from .35 to .84 and to .70, and stays flat with
the context blanked. In seed 3 nothing rises: its warm start answers in the right form and notes what it sees, but looks up only .36
of what its context knows, where one in four is chance, and training did not mend that. So over seeds nothing is shown; of one
seed its interval over packs speaks.

**Training adds what a lower temperature adds.** Where the look-up is there, training adds to the warm start at the same
temperature, .14 [.08, .20] and .07 [.02, .13] in the tasks after the first. Over the warm start at T=0.3 nothing is gained, and in
seed 2 .07 [.01, .13] is lost.
"""
LEARNABLE = """
## What made the look-up learnable

The first demonstrations noted `- Lever 3: gold` and answered `I want gold. <answer>Lever 3</answer>`. The number stands before the
colour and is asked for three pieces behind it, so that no head that says what followed finds it. A policy of 0.6 million
parameters was shown 2,400 updates of them and had 1.31 nats at the lever that is pulled, where 0.45 are possible and 1.39 need no
context; its success did not depend on its context.

Now demonstrations say a fact both ways, with the lever right behind the colour, and the answer begins with the question and then
repeats what the context says of it:

    - Lever 3: gold, so for gold Lever 3
    The wanted colour is gold, so for gold Lever 3 <answer>Lever 3</answer>
    The wanted colour is blue, so for blue unknown Lever 1 <answer>Lever 1</answer>

With the other dials as they were, the same 0.6 million parameters had 0.00 nats at a lever that the context names after 950
updates (6 minutes, 5 million tokens, most of them of prompts). Two more things were found by looking at each demonstrated token,
in single runs; all three are by scripts that are not kept:

- *The answer has to begin with its question.* With `I want gold, so for gold Lever 3` a warm start of 2.2 million parameters
  (1,000 updates) had 0.00 nats at the lever and 1.4 at the colour behind `want`: it looked up a colour of its own choice. Behind
  `The wanted colour is`, words of the observation, the colour follows by copying.
- *Contexts have to be as they are in play.* Where a fifth of their facts was made up, so that facts contradict each other, and
  six entries of ten were noted as they were seen (600 updates), notes were poor and training began at a flat 0.4. Now a
  demonstrated context is true and lacks half of the facts, or there is none, and eight entries of ten are noted as they were
  seen.

Prompts, parsers, rewards and tokenizer are as they were.
"""
LIMITS = """
## Limits

- The seconds of seed 1 leave out 1,530 in which it stood still.
- A shorter run is not enough. With 800 updates of demonstrations and 16 rollouts (levers, seeds 1 and 2, 16 minutes each, commit
  eefb038) success was .42 .60 .63 .55 and .41 .48 .45 .51, and training was not shown to add anything: the writer of seed 2 had
  hardly learnt to copy facts.
- Dials, updates and the learning rate were chosen on four attempts with seed 1, by success in training and validation.
- The policy knows no more of language than these sentences, and begins as a copier (`models/induction.py`), as language models do
  after their pre-training. It says nothing about how well a real checkpoint learns.
- Demonstrations contained weak forms of the skill: a player that trusts its context, and a writer that notes a fact as it was seen
  in 8 of 10 cases, else at random.
- Levers have 24 hidden orders, all of which occur in training; held-out packs differ in orders together with goals.
- FrozenLake-Obscure in sentences is not learnt within an hour. Its rows are nearly twice as long (3x3 with six steps: 670 tokens,
  at most 1,230), an update costs three times as much, and besides looking up and noting its player reads a map. After 2,000
  updates of demonstrations (50 minutes on a core) .69 of first answers want a direction that leads closer to the goal, .98 of
  those that the context answers are looked up, and .16 of the facts that moves show are noted: in `Direction 2 moved you up` the
  value stands one word further behind its code than in a note. With notes in the words of the record (`- Direction 2 moved
  you up, so for up Direction 2`) and 1,500 updates these were .35, .63 and .31, and success was flat after 8 of 24 rollouts (one
  seed each, temperature 1; these configurations are not kept).
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
            results["machine"] = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
            OUT.write_text(json.dumps(results, indent=1) + "\n")
            OUT.with_suffix(".md").write_text(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
