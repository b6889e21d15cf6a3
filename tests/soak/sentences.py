"""A policy from nothing in the sentences that real checkpoints get: warm start, training and controls, one run a seed.

    python tests/soak/sentences.py --runs runs/sentences [--seeds 1 2 3] [--page_only]

Every run is `python -m cod_lightning fit --config experiment/sentences_levers --seed_everything SEED` in a process of its own,
timed from outside with its warm start. Finished runs are kept, so that the command may be stopped at any time. It writes
`docs/results/sentences.json` and `sentences.md`; seeds that the folder lacks stay in the JSON as they were.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from cod_lightning.commands.config_files import expand
from cod_lightning.commands.lightning_cli import start
from cod_lightning.commands.warm_start import WarmStartCLI
from cod_lightning.envs.levers.wording import NaturalLevers
from cod_lightning.markdown import table
from cod_lightning.types import EpisodeKind, Turn
from datamodules import DemonstrationDataModule
from modules import WarmStartModule

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "docs" / "results" / "sentences.json"
CONFIG = "experiment/sentences_levers"
WARM_START = "warm_start/sentences_levers"
COMMAND = f"python -m cod_lightning fit --config {CONFIG}"
SUITE = "held_out"


def run(seed: int, folder: Path) -> None:
    """Train where it is not finished; what came out stays in the folder, with its command and seconds in `done.json`."""
    if (folder / "done.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "cod_lightning", "fit", "--config", CONFIG, "--seed_everything", str(seed)]
    command += ["--trainer.default_root_dir", str(folder / "run"), "--overwrite", "true"]
    environment = os.environ | {"COD_LIGHTNING_CACHE": str(folder / "cache")}
    begun = time.perf_counter()
    with (folder / "log.txt").open("w") as log:
        status = subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=log).returncode
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{(folder / 'log.txt').read_text()[-3000:]}")
    done = {"command": f"{COMMAND} --seed_everything {seed}", "seconds": round(time.perf_counter() - begun)}
    (folder / "done.json").write_text(json.dumps(done))


def record(folder: Path) -> dict[str, Any]:
    """What the page tells of a finished run."""
    suite = json.loads((folder / "run" / "evaluation.json").read_text())["suites"][SUITE]
    kept = {key: suite[key] for key in ("packs", "env", "positions", "controls", "paired")}
    figures = suite["figures"]
    kept["transfer"] = figures["forward_transfer"]["success"]
    kept["over_warm_start"] = figures["differences"]["warm_start"]["success"]
    (weights,) = folder.glob("cache/warm_start/*/policy")
    return {**json.loads((folder / "done.json").read_text()), **kept, "nats": nats(weights)}


def page(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    runs = results["runs"]
    lines = [
        "# Sentences on a laptop, measured",
        "",
        "Do the prompts, parsers, rewards and lengths that real checkpoints get train? A policy of 2.2 million parameters, whose",
        "tokenizer is made of the world's own sentences, meets levers in the natural protocol from nothing: demonstrations, then",
        "CoD-Train. Success by position on held-out packs, 95 % intervals over packs in brackets. Seconds are those of one process",
        "on one core of a shared machine, the final tests included.",
        "",
        f"Made by `python tests/soak/sentences.py --runs runs/sentences`; measured on {results['machine']}.",
    ]
    for seed, of in runs.items():
        lines += [
            "",
            f"## Seed {seed}",
            "",
            f"`{of['command']}`: {of['seconds']} s with its warm start; {of['packs']} packs from `{of['env']}`.",
            "",
        ]
        rows = {"trained": of["positions"], **of["controls"]}
        cells = [[name, *map(_cell, positions)] for name, positions in rows.items()]
        lines += [table(["policy", *map(str, range(len(of["positions"])))], cells), "", *_reading(of)]
    rows = [
        [seed, SHOWN[kind], str(one["num"]), *(f"{one[key]:.2f}" for key in ("mean", "best", "blind"))]
        for seed, of in runs.items()
        for kind, one in of["nats"].items()
    ]
    header = ["seed", "demonstrated response", "number", "warm start", "best possible", "form alone"]
    return "\n".join([*lines, "", *LOOK_UP, "", table(header, rows), "", *LIMITS, ""])


SHOWN = {"pull": "first pull, its colour in the context", "note": "note of four facts"}
LOOK_UP = (
    "## What made the look-up learnable",
    "",
    "The first demonstrations noted `- Lever 3: gold` and answered `I want gold. <answer>Lever 3</answer>`. The number",
    "stands before the colour and is asked for three pieces behind it, so that no head that says what followed finds it. A",
    "policy of 0.6 million parameters was shown 2,400 updates of them and had 1.31 nats at the lever that is pulled, where",
    "0.45 are possible and 1.39 need no context; its success did not depend on its context.",
    "",
    "Now demonstrations say a fact both ways, with the lever right behind the colour, and the answer begins with the",
    "question and then repeats what the context says of it:",
    "",
    "    - Lever 3: gold, so for gold Lever 3",
    "    The wanted colour is gold, so for gold Lever 3 <answer>Lever 3</answer>",
    "    The wanted colour is blue, so for blue unknown Lever 1 <answer>Lever 1</answer>",
    "",
    "With the other dials as they were, the same 0.6 million parameters had 0.00 nats at a lever that the context names",
    "after 950 updates (6 minutes, 5 million tokens, most of them of prompts). Two more things were found by looking at",
    "each demonstrated token, in single runs; all three are by scripts that are not kept:",
    "",
    "- *The answer has to begin with its question.* With `I want gold, so for gold Lever 3` a warm start of 2.2 million",
    "  parameters (1,000 updates) had 0.00 nats at the lever and 1.4 at the colour behind `want`: it looked up a colour of",
    "  its own choice. Behind `The wanted colour is`, words of the observation, the colour follows by copying.",
    "- *Contexts have to be as they are in play.* Where a fifth of their facts was made up, so that facts contradict each",
    "  other, and six entries of ten were noted as they were seen (600 updates), notes were poor and training began at a",
    "  flat 0.4. Now a demonstrated context is true and lacks half of the facts, or there is none, and eight entries of ten",
    "  are noted as they were seen.",
    "",
    "Prompts, parsers, rewards and tokenizer are as they were.",
    "",
    "Below: nats of whole demonstrated responses of another seed's packs, by the warm start. *Best possible* is what the",
    "demonstrator's own randomness leaves; *form alone* is the least for one who never looks at the prompt.",
)


LIMITS = (
    "## Limits",
    "",
    "- One seed. It ran on a shared machine and stood still for 1,530 s, which its seconds leave out.",
    "- A shorter run is not enough. With 800 updates of demonstrations and 16 rollouts (seeds 1 and 2, 16 minutes each, commit",
    "  eefb038) success was .42 .60 .63 .55 and .41 .48 .45 .51, own contexts over blanked ones from the second task on +.203",
    "  [+.130, +.273] and +.065 [+.008, +.122], and training was not shown to add anything. A note cost 3.7 and 5.6 nats there:",
    "  the writer of seed 2 had hardly learnt to copy facts.",
    "- Dials, updates and the learning rate were chosen on four attempts with seed 1, by success in training and validation.",
    "- What training adds over the warm start at T=1, a temperature of 0.3 adds as well.",
    "- The policy knows no more of language than these sentences, and begins as a copier (`models/induction.py`), as language",
    "  models do after their pre-training. It says nothing about how well a real checkpoint learns.",
    "- Demonstrations contained weak forms of the skill: a player that trusts its context, and a writer that notes a fact as it",
    "  was seen in 8 of 10 cases, else at random.",
    "- Levers have 24 hidden orders, all of which occur in training; held-out packs differ in orders together with goals.",
    "- FrozenLake-Obscure in sentences was not trained. Its rows are nearly twice as long (3x3 with six steps: 680 tokens, at",
    "  most 1,230, so that the window has to grow, against 400 on levers), and besides looking up its player reads a map.",
)


def nats(weights: Path, num_packs: int = 20) -> dict[str, dict[str, float]]:
    """Nats of whole demonstrated responses of another seed's packs, by what has to be found in the prompt for them.

    `best` is what the demonstrator's own randomness leaves, `blind` what is left to one who knows the form and never looks.
    """
    argv = [*expand(["--config", WARM_START]).argv, "--seed_everything", "77", "--trainer.accelerator", "cpu"]
    cli = start(WarmStartCLI, WarmStartModule, DemonstrationDataModule, argv, execute=False)
    data, policy, wording = cli.datamodule, cli.model.policy, NaturalLevers()
    policy.weights = str(weights)
    data.trainer = SimpleNamespace(lightning_module=cli.model)
    data.setup("fit")
    model = policy.model(data.chat.tokenizer).eval()
    found: dict[str, list[float]] = {"pull": [], "note": []}
    for life in (life for index in range(num_packs) for life in data._demonstrate(index).lifecycles):
        for episode in life.episodes:
            first = episode.turns[0]
            known = wording.facts.parse(episode.context_before).values()
            if episode.kind is EpisodeKind.UPDATE:
                found["note"].append(_nats(model, first))
            elif wording.goal_of(first.observation) in known:
                found["pull"].append(_nats(model, first))
    dials = data.env.teacher
    right = dials.note_accuracy + (1 - dials.note_accuracy) / 5
    bounds = {
        "pull": (_entropy(dials.follow, 1 - dials.follow) + (1 - dials.follow) * math.log(4), math.log(4)),
        "note": (4 * _entropy(right, *[(1 - right) / 4] * 4), 4 * math.log(5)),
    }
    return {
        kind: {"mean": sum(of) / len(of), "num": len(of), "best": bounds[kind][0], "blind": bounds[kind][1]}
        for kind, of in found.items()
    }


def _nats(model: Any, turn: Turn) -> float:
    """Of a first turn's response, summed over its tokens."""
    ids = torch.tensor([(*turn.new_ids, *turn.action_ids)])
    with torch.no_grad():
        logprobs = model(ids).logits[0, :-1].log_softmax(-1)
    return -float(logprobs.gather(1, ids[0, 1:, None])[-len(turn.action_ids) :].sum())


def _entropy(*shares: float) -> float:
    """Nats."""
    return -sum(share * math.log(share) for share in shares if share)


def _reading(of: dict[str, Any]) -> list[str]:
    """The run in words."""
    success = [one["success"] for one in of["positions"]]
    blanked = [one["success"] for one in of["controls"]["blanked_context"]]
    gains = [of_tasks[-1] - of_tasks[0] for of_tasks in (success, blanked)]
    lines = [
        f"- From the first task to the last: {gains[0]:+.3f}; with the context hidden {gains[1]:+.3f}.",
        f"- From the second task on, over blanked contexts: {_difference(of['transfer'])}.",
        f"- Over the warm start at the same temperature, 1: {_difference(of['over_warm_start'])} in the mean over positions.",
    ]
    if best := of["paired"]["trained_minus_best_warm_start"]:
        low, high = best["ci95"]
        shown = "more than" if low > 0 else "less than" if high < 0 else "not shown to differ from"
        lines.append(
            f"- Trained is {shown} its warm start at the best temperature ({best['best_temperature']}): "
            f"{best['mean_difference']:+.3f} [{low:+.3f}, {high:+.3f}] in the mean over positions."
        )
    return lines


def _difference(of: dict[str, Any]) -> str:
    low, high = of["ci95"]
    return f"{of['mean']:+.3f} [{low:+.3f}, {high:+.3f}]"


def _cell(position: dict[str, Any]) -> str:
    low, high = position["success_ci95"]
    return f"{position['success']:.3f} [{low:.3f}, {high:.3f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, required=True, help="Where runs are kept.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--page_only", action="store_true", help="Write JSON and page from finished runs.")
    args = parser.parse_args()
    results = json.loads(OUT.read_text()) if OUT.exists() else {"runs": {}}
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    for seed in args.seeds:
        folder = args.runs / str(seed)
        if not args.page_only:
            run(seed, folder)
        if (folder / "done.json").exists():
            results["runs"][str(seed)] = record(folder)
            results["machine"] = machine
            OUT.write_text(json.dumps(results, indent=1) + "\n")
            OUT.with_suffix(".md").write_text(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
