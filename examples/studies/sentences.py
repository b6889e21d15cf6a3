"""A policy from nothing in the sentences that real checkpoints get: warm start, training and controls, one run a seed.

    PYTHONPATH=. python examples/studies/sentences.py --runs runs/sentences [--worlds levers lake] [--seeds 1 2 3] [--page_only]

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
    for world, unsorted in results["worlds"].items():
        runs = dict(sorted(unsorted.items()))
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
is made of the world's own sentences, meets levers and FrozenLake-Obscure in the natural protocol from nothing: demonstrations,
then CoD-Train. Success by position is on 128 held-out packs, the same for all policies; intervals (95 %) are over seeds and packs,
with a single seed over packs alone. Seconds are those of one process on one core of a shared machine, warm start and final tests
included.

`PYTHONPATH=. python examples/studies/sentences.py --runs runs/sentences` writes this page.
"""
SEEN = """
## What it shows

**Levers: three seeds of three learn it.** Success rises from .43 to .69 over the tasks of held-out packs, gain .26 [.19, .33]
over seeds; with the context blanked no rise is shown, -.01 [-.31, .29] (.12, -.02 and -.13 by seed). In each seed the
contexts are worth something: transfer .14 [.09, .20] to .34 [.28, .40]. Over three seeds its interval just holds 0.

**FrozenLake: two seeds of three learn it**, less well: .21 to .43 and .20 to .54, transfer .22 [.17, .26] and .25 [.19, .30].
They look up nearly all that their contexts know, and .86 of their first answers want a way that leads forward. Seed 3 does
not rise: transfer -.02 [-.05, .01]. Its warm start looks up all that its context knows and notes .75 of what it is shown, but
.34 of its first answers want a way forward, where a guess has .30. It says on which side the goal is and then wants another
way: `I am in row 0 1 down, column 0 0 same. I want to go up`. In 20 rollouts training did not mend that. It was too few
demonstrations: with `num_updates: 1800` in a warm start of its own (tested alone, without training) .73 of its first answers
want a way forward, and it solves .25 .29 .31 .38, at T=0.3 .23 .34 .45 .55. Over all seeds neither gain nor transfer is shown.
The scripted player, which plans around holes and concludes what it was not shown, reaches .94.

**Training adds no more than a lower temperature does**, over seeds. It mends what a warm start lacks only in part: in seed 3 of
the levers, whose warm start looks up .73, training adds .15 [.08, .21] at the same temperature and .08 [.01, .14] over T=0.3;
where the look-up was there it adds nothing that shows, and ends below T=0.3. On the lake it adds .06 [.01, .10] and .10 [.04, .16]
at the same temperature in the two seeds that learn, and nothing that shows over T=0.3.
"""
LEARNABLE = """
## What made it learnable

A policy of three layers that begins as a copier sees a word and the two before it, and repeats what followed the same words
elsewhere. What it is to learn has to be said so that this finds it:

    Pull 2 of 2. Lever 3 gives gold.
    - Lever 3 gives gold, so gold Lever 3
    The wanted colour is gold, so gold Lever 3 <answer>Lever 3</answer>
    The wanted colour is blue, so blue unknown Lever 1 <answer>Lever 1</answer>

Each of these was found by looking at the probability of every demonstrated token, in single runs whose scripts are not kept:
causes that are likely, not measured effects.

- *Nothing is concluded.* Where three facts of four are known, demonstrations used to conclude the fourth, which stands nowhere.
  After 400 updates of levers (seed 3) .76 of the levers that a colour calls for had most of the probability, and .83 of the words
  that say whether it is known; with `teacher.infers: false` .99 and .96. Before, this seed had not learnt to look up after 2,000
  updates (.36 of what its context knew, where one in four is chance).
- *A fact is said both ways, with the code right behind the value, and an answer begins with its question.* With `- Lever 3: gold`
  alone and `I want gold.` a lever had 1.31 nats after 2,400 updates, where .45 are possible and 1.39 need no context.
- *No more than one word stands between.* In `I want to go down, so for down Direction 3` the value has to be repeated over three
  words, and after 1,000 updates policies still said `I want to go down, so for left`; with `so down` it had all of the
  probability after 100.
- *What is noted is said as it was seen, piece by piece.* Notes had a colon where the record has a verb, and in the record a
  sentence at the beginning of a line begins with another piece (`Lever` without its space) than in a note. With both alike .77 of
  the words that say whether a code's fact is known had most of the probability after 200 updates of levers (seed 2), with the
  verb alone .63.
- *Numbers that are compared stand side by side.* Behind `I am at row 2, column 1. The goal is at row 1, column 0. I want to go`
  the direction was a guess after 300 updates (.30 had most of the probability); in `I am in row 2 1 up, column 1 0 left. I want
  to go up` the goal's numbers and both directions were right after 100 (.98 and more). What is wanted is the first of these that
  leads forward around holes.
- *Where the player is stands in words.* Only the map shows it else. Without these words its row and column in a first observation
  were a guess after 200 updates (3,200 tasks; 1.17 nats, where ln 3 is 1.10); with them they were right after 50 (400 tasks).
- *Contexts are as they are in play*: true, with half of the facts missing, or none. With made-up facts among them notes were poor.

So the wording of moves and pulls was changed for all policies (`Direction 2 leads up` in place of `moved you up`, behind another
word of its line); prompts, parsers, rewards and tokenizer are as they were.
"""
LIMITS = """
## Limits

- Demonstrations contained the skill in weak form: a player that trusts its context and compares cells aloud, and a writer that
  notes a fact as it was seen in 8 of 10 cases, else at random.
- The lake is small: 3x3, three steps, goals at most three away, as many holes as in the quick start, the player's cell in words.
  With six steps and no cell in words 2,000 updates of earlier demonstrations taught it neither to want what leads forward (.69)
  nor to note (.16).
- An earlier lake policy, shown half as many notes in other pieces, noted .37 of its facts at T=0.3; trained from there with a rate
  of 2e-4 it answered in no form any more after five rollouts. The rate is 1e-4 now.
- Dials, wording, updates and learning rates were chosen by success in training and validation and by the tokens of
  demonstrations, on levers with all three seeds, on the lake with seed 1, before seeds 2 and 3 were run.
- The levers had been run before, with 800 updates, `so for` and a colon: tested on these packs, seeds 1 and 3 rose (.35 .56 .66 .76
  and .42 .66 .67 .73); seed 2 did not rise in its first eight rollouts and was stopped. Then the wording was changed.
- The policy knows no more of language than these sentences, and begins as a copier (`models/induction.py`), as language models do
  after their pre-training. It says nothing about how well a real checkpoint learns.
- Levers have 24 hidden orders, all of which occur in training; held-out packs differ in orders together with goals. Lakes are
  split by their maps.
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
