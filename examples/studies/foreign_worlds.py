"""A tiny policy trained on TextWorld's houses, against controls and references; and the references of its natural wording.

    PYTHONPATH=. python examples/studies/foreign_worlds.py --out docs/results/foreign_worlds.json --runs FOLDER
        [--seeds 1 2 3] [--credit_seeds 1 2 3 4 5] [--page_only]

Needs the extra `textworld`. Each seed is one `fit --config examples/studies/textworld.yaml`, about 9 minutes of one core; each
credit seed is two shorter ones. Runs that are in FOLDER already are measured, not trained again, and `--page_only` trains none;
what FOLDER lacks then stays as the JSON file has it. The page is written beside the JSON file.
"""

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from jaxtyping import Float

from cod_lightning.commands.worlds import parse_world
from cod_lightning.contexts import HintContext
from cod_lightning.evaluation.controls import REFERENCES
from cod_lightning.evaluation.crossed import seed_estimate
from cod_lightning.evaluation.references import play_reference, summarise
from cod_lightning.markdown import table
from cod_lightning.types import Split

EXPERIMENT = "examples/studies/textworld.yaml"
PACKS = "evaluation_packs.parquet"
NATURAL = {
    "textworld_easy": (),
    "textworld_hard": tuple(
        f"--env.world.{key}={value}"
        for key, value in {
            "layout": "grid",
            "doors": "locked",
            "num_rooms": 8,
            "num_things": 6,
            "num_holders": 5,
            "max_turns": 10,
            "min_commands": 4,
        }.items()
    ),
}
"""Houses, and how each differs from `env=textworld_easy`."""
ROWS = {
    "trained": "trained, T=1",
    "blanked_context": "its context hidden",
    "shuffled_context": "another pack's context",
    "warm_start": "warm start, T=1",
    "warm_start_t0.3": "warm start, T=0.3",
    "memoryless": "scripted, without memory",
    "scripted": "scripted",
}
"""Of the controls, which the JSON has all."""


SCOPES = {"episode": "episode credit", "trajectory": "trajectory credit"}
CREDIT = {
    "episode": ("--model.credit.mean", "true", "--model.credit.discount", "1.0"),
    "trajectory": ("credit=TrajectoryCredit",),
}
CREDIT_EPOCHS = 1
CREDIT_SUITE = {
    "name": "held_out",
    "num_packs": 512,
    "controls": ["blanked_context"],
    "warm_start_temperatures": [0.3],
}


def fit(seed: int, run: Path, *more: str) -> None:
    """One training with its evaluation."""
    argv = ["fit", "--config", EXPERIMENT, *more, "--seed_everything", str(seed)]
    argv += ["--trainer.default_root_dir", str(run)]
    command = [sys.executable, "-m", "cod_lightning", *argv]
    done = subprocess.run(
        command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"seed {seed} ended with {done.returncode}:\n{done.stderr[-3000:]}")


def measured(run: Path) -> dict[str, Any]:
    """Success by position and condition, what of it is repeated tasks, and three contexts."""
    suite = json.loads((run / "evaluation.json").read_text())["suites"]["held_out"]
    of = {"trained": suite["positions"], **suite["controls"]}
    return {
        "success": {key: [one["success"] for one in of[key]] for key in ROWS},
        "reward": [one["reward"] for one in suite["positions"]],
        "packs": suite["packs"],
        **repeated(run),
        "contexts": contexts(run),
    }


def repeated(run: Path) -> dict[str, float]:
    """Success from position 1 on, in tasks whose thing was sought before in the pack, and in those whose was not."""
    world = parse_world("check", "", ["--env", "textworld_compact"]).env
    played = pq.read_table(run / PACKS).to_pylist()
    found: dict[bool, list[float]] = {True: [], False: []}
    packs: dict[str, Any] = {}
    for row in played:
        if row["condition"] != "trained" or row["position"] == 0 or row["success"] is None:
            continue
        name, _, _, index = row["pack"].rsplit("/", 3)
        assert name == world.name, f"{row['pack']} is not of {world.name}"
        if row["pack"] not in packs:
            packs[row["pack"]] = world.sample_pack(split=Split.TEST, index=int(index), num_tasks=4)
        found[packs[row["pack"]].tasks[row["position"]].repeat].append(row["success"])
    return {"sought_before": float(np.mean(found[True])), "sought_first": float(np.mean(found[False]))}


def contexts(run: Path) -> list[dict[str, Any]]:
    """What the trained policy noted after each of the first three tasks of three packs."""
    with (run / "lifecycles" / "test_held_out_trained.jsonl").open() as file:
        lives = [json.loads(line) for _, line in zip(range(3), file, strict=False)]
    return [
        {
            "seen": [one["feedback"] for one in life["episodes"] if one["kind"] == "solve"],
            "noted": [one["context_after"] for one in life["episodes"] if one["kind"] == "update"],
        }
        for life in lives
    ]


def credit_fit(scope: str, seed: int, run: Path) -> None:
    """One training of the comparison of credit."""
    budget = ("--trainer.max_epochs", str(CREDIT_EPOCHS), "--data.suites", json.dumps([CREDIT_SUITE]))
    fit(seed, run, *CREDIT[scope], *budget)


def credit_measured(run: Path) -> dict[str, Any]:
    """Success by position, of the trained policy, with its context hidden, and of the warm start; and what was sampled."""
    suite = json.loads((run / "evaluation.json").read_text())["suites"]["held_out"]
    of = {"trained": suite["positions"], **suite["controls"]}
    with (run / "metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["tokens/sampled"]]
    return {
        "success": {
            key: [one["success"] for one in of[key]] for key in ("trained", "blanked_context", "warm_start_t0.3")
        },
        "packs": suite["packs"],
        "updates": len(rows),
        "sampled_tokens": int(float(rows[-1]["tokens/sampled"])),
    }


def references(name: str, num_packs: int) -> dict[str, Any]:
    """Success by position of the references in natural wording."""
    world = parse_world("check", "", ["--env", "textworld_easy", *NATURAL[name]]).env
    packs = [world.sample_pack(split=Split.TEST, index=index, num_tasks=4) for index in range(num_packs)]
    rows = {}
    for one in REFERENCES:
        row = summarise(list(play_reference(world, packs, one.reference, HintContext(), blanked=one.blanked)))
        assert not row.num_failed, f"{row.num_failed} lifecycles of {one.name} in {name} failed"
        rows[one.name] = [[at.mean, *(at.ci95 or [at.mean, at.mean])] for at in row.success]
    return {"num_packs": num_packs, "success": rows}


def over_seeds(values: Sequence[float]) -> str:
    """Mean with its 95 % interval; a policy without a model has the same value with every seed."""
    if len(values) > 1 and len(set(values)) == 1:
        return f"{values[0]:.3f}"
    one = seed_estimate(np.array(values, dtype=float))
    return f"{one.mean:.3f}" + (f" [{one.ci95[0]:.3f}, {one.ci95[1]:.3f}]" if one.ci95 else " (one seed)")


def credit_lines(found: dict[str, dict[str, Any]]) -> list[str]:
    """The section of the page that compares scopes of credit, paired by seed."""
    paired = [seed for seed, one in found.items() if set(SCOPES) <= one.keys()]

    def values(scope: str, key: str = "trained") -> Float[np.ndarray, "S N"]:
        return np.array([found[seed][scope]["success"][key] for seed in paired])

    rows = {
        **{label: values(scope) for scope, label in SCOPES.items()},
        "trajectory less episode, paired by seed": values("trajectory") - values("episode"),
        "warm start, T=0.3": values("episode", "warm_start_t0.3"),
    }
    cells = [[label, over_seeds(of[:, -1]), over_seeds(of.mean(axis=1))] for label, of in rows.items()]
    return [
        "## Credit by episode and by trajectory",
        f"`fit --config {EXPERIMENT} credit=SCOPE --trainer.max_epochs {CREDIT_EPOCHS}`, a sixth of the training above; "
        f"{len(paired)} seeds, {found[paired[0]]['episode']['packs']} houses.",
        table(["policy", "position 3", "mean of positions"], cells),
    ]


def fault_lines(folder: Path) -> list[str]:
    """What the counts of `openenv_faults.py` and `program_faults.py` in the folder say."""
    openenv, programs = (json.loads((folder / f"{name}_faults.json").read_text()) for name in ("openenv", "program"))
    counted = [(openenv["lifecycles of each"], openenv["counted"])]
    counted += [(programs["lifecycles of each"], one) for one in programs["counted"].values()]
    planted = sum(each for each, kinds in counted for kind in kinds if kind not in ("no fault", "none"))
    hangs = sum(each - sum(names.values()) for each, kinds in counted for names in kinds.values())
    return [
        f"Of {planted:,} lifecycles with a fault planted in an OpenEnv server, in agent programs or in a stand-in for verifiers'",
        f"worker {hangs} did not end ([openenv_faults.json](openenv_faults.json), [program_faults.json](program_faults.json);",
        "scripts in `examples/studies/robustness/`).",
    ]


def page(found: dict[str, Any], folder: Path) -> str:
    """The page."""
    runs = list(found["seeds"].values())
    about = ABOUT.strip().format(
        experiment=EXPERIMENT,
        seeds=", ".join(found["seeds"]),
        packs=f"{runs[0]['packs']:,}",
    )
    rows = [
        [label, *(over_seeds([run["success"][key][n] for run in runs]) for n in (0, 1, 3))]
        for key, label in ROWS.items()
    ]
    natural = [
        [f"`{name}`", key, *(f"{m:.2f} [{low:.2f}, {high:.2f}]" for m, low, high in (row[0], row[-1]))]
        for name, one in found["natural"].items()
        for key, row in one["success"].items()
        if key in ("memoryless", "scripted")
    ]
    differing = json.loads((folder / "same_curves.json").read_text())["differing_columns"]
    columns = ", ".join(sorted({name for names in differing.values() for name in names}))
    reading = READING.strip().format(
        before=over_seeds([run["sought_before"] for run in runs]),
        first=over_seeds([run["sought_first"] for run in runs]),
    )
    return (
        "\n\n".join(
            [
                "# Worlds that others wrote, measured",
                about,
                table(["policy", "0", "1", "3"], rows),
                reading,
                *credit_lines(found["credit"]),
                "## TextWorld, its own text",
                "Scripted players in natural wording, 30 packs of 4, 95 % intervals over packs. No model was trained on it.",
                table(["environment", "policy", "0", "3"], natural),
                "## Served, and failing",
                "\n".join([SERVED.strip().format(columns=columns), *fault_lines(folder)]),
                LIMITS,
            ]
        )
        + "\n"
    )


ABOUT = """
**Do environments that others wrote train, and fail, as ours do?** [How to use them](../guides/environments_of_others.md).
TextWorld's houses in fused words: a policy of 0.2 million parameters, 1,500 updates on demonstrations (a writer that notes half of
the places as seen), then 240 by reward: `fit --config {experiment}`, seeds {seeds}.

    PYTHONPATH=. python examples/studies/foreign_worlds.py --out docs/results/foreign_worlds.json --runs FOLDER

Success by position on {packs} held-out houses, means with 95 % intervals over seeds (Student's t). Seeds, controls and machine:
[foreign_worlds.json](foreign_worlds.json).
"""
READING = """
Contexts carry the rise, from position 1 on to {before} where an earlier task sought the same, else to
{first}. The warm start at T=0.3 ends no lower.
"""
LIMITS = "**Limits**: one game, fused words."
SERVED = """
One policy trained on the guides' hidden number in this process, behind an OpenEnv server and as a taskset of verifiers
(`examples/studies/same_curves.py`): metrics.csv differs in {columns} alone, by
rounding (about 1e-7).
"""


def main() -> None:
    """Train what is missing, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--credit_seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--runs", type=Path, required=True, help="Where runs are kept.")
    parser.add_argument("--num_packs", type=int, default=30, help="Packs of the natural wording for each reference.")
    parser.add_argument("--page_only", action="store_true", help="Train nothing.")
    options = parser.parse_args()
    found: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    found |= {"machine": f"{os.cpu_count()} cores, {platform.machine()}", "python": platform.python_version()}
    seeds, credit = found.setdefault("seeds", {}), found.setdefault("credit", {})
    for seed in options.seeds:
        run = options.runs / f"tw{seed}"
        if not options.page_only and not (run / "report.html").exists():
            fit(seed, run)
        if (run / "report.html").exists():
            seeds[str(seed)] = measured(run)
            print(seed, seeds[str(seed)]["success"]["trained"], flush=True)
    for seed in options.credit_seeds:
        for scope in SCOPES:
            run = options.runs / f"{scope}{seed}"
            if not options.page_only and not (run / "report.html").exists():
                credit_fit(scope, seed, run)
            if (run / "report.html").exists():
                credit.setdefault(str(seed), {})[scope] = credit_measured(run)
                print(scope, seed, credit[str(seed)][scope]["success"]["trained"], flush=True)
    if not options.page_only:
        found["natural"] = {name: references(name, options.num_packs) for name in NATURAL}
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    options.out.with_suffix(".md").write_text(page(found, options.out.parent))


if __name__ == "__main__":
    main()
