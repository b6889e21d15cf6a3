"""A proposer and a solver in one policy, against a proposer that is not trained and packs as they are drawn: equal sampled tokens.

    PYTHONPATH=. python examples/studies/proposals.py --runs runs/proposals [--arms NAME ...] [--seeds 1 2 3] [--page_only]

Every arm is `python -m cod_lightning fit --config experiment/propose_levers` with its arguments, from one warm start a seed; see
`signals.py`, whose page has the results.
"""

import argparse
import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from cod_lightning.envs.levers.wording import COLOURS, CompactLevers
from cod_lightning.markdown import table
from examples.studies.signals import RESULTS, differences, finished, interval, page, train

CONFIG = "experiment/propose_levers"
BUDGET = 300_000
NUM_POSITIONS, SOLVES = 9, 3
BASE = "packs as they are drawn, as often"
ROLLOUTS = 4
"""At the start, and at the end, whose proposals are counted."""
ARMS: dict[str, tuple[str, ...]] = {
    "proposer and solver": (),
    "proposer frozen": (
        "--model.trained_kinds",
        "[solve, update]",
        "--data.frozen",
        "FrozenRole",
        "--data.frozen.kind",
        "write",
    ),
    "proposer alone": ("--model.trained_kinds", "[write]"),
    BASE: ("--data.program.init_args.proposes", "false"),
    "packs as they are drawn, each task once": (
        "--data.program",
        '{"class_path": "cod_lightning.lifecycles.ConnectTheDots"}',
    ),
}


def measured(folder: Path) -> dict[str, Any]:
    """A finished run: success on held-out packs with controls, area under its learning curve, and what it proposed."""
    suite = json.loads((folder / "evaluation.json").read_text())["suites"]["held_out"]
    controls = {name: mean(one["success"] for one in rows) for name, rows in suite["controls"].items()}
    with (folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    tokens, success, sampled = list[float](), list[float](), 0.0
    for row in rows:
        sampled = float(row["tokens/sampled"] or sampled)
        if row["val/success/position_0"]:
            tokens.append(sampled)
            success.append(mean(float(row[f"val/success/position_{n}"]) for n in range(NUM_POSITIONS)))
    by_position = [one["success"] for one in suite["positions"]]
    return {
        "final": mean(by_position),
        "last": by_position[-1],
        "by_position": by_position,
        **controls,
        "area": float(np.trapezoid(success, tokens)) / (tokens[-1] - tokens[0]),
        "sampled_tokens": sampled,
        **asked(folder / "lifecycles" / "train.jsonl"),
    }


def asked(transcript: Path) -> dict[str, Any]:
    """Of the first and the last rollouts: `valid`, the share of proposals that are a task; and of those made with a context,
    `unknown`, the share that asks for a colour of which it says nothing, and `by_chance`, that share of a colour at random; and
    `learnability` by position of the proposal."""
    by_step: dict[int, list[dict[str, Any]]] = {}
    for line in transcript.read_text().splitlines():
        life = json.loads(line)
        by_step.setdefault(life["step"], []).extend(one for one in life["episodes"] if one["kind"] == "write")
    if not any(by_step.values()):
        return {}
    steps = sorted(by_step)
    ends = {"start": steps[:ROLLOUTS], "end": steps[-ROLLOUTS:]}
    return {name: _asked([one for step in of for one in by_step[step]]) for name, of in ends.items()}


def _asked(proposals: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    wording, unknown, by_chance = CompactLevers(), list[bool](), list[float]()
    learnability: dict[int, list[float]] = {}
    for one in proposals:
        if one["reward"] is not None:
            learnability.setdefault(one["position"], []).append(one["reward"])
        if one["success"] and one["context_before"]:
            known = set(wording.facts.parse(one["context_before"]).values())
            unknown.append(wording.chosen(one["turns"][-1]["response"]) not in known)
            by_chance.append(1 - len(known) / len(COLOURS))
    return {
        "valid": mean(bool(one["success"]) for one in proposals),
        **({"unknown": mean(unknown), "by_chance": mean(by_chance)} if unknown else {}),
        "learnability": {str(n): mean(values) for n, values in sorted(learnability.items())},
    }


def section(runs: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """The results as lines of Markdown."""
    return ["## Proposer and solver", "", *_text(runs)] if runs else []


def _text(runs: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    yield f"`fit --config {CONFIG}`, {BUDGET:,} tokens, three seeds: the agent proposes a colour, looks for it three times from"
    yield f"one context, and updates it; three rounds. Success on held-out packs of six; the base is `{BASE}`. The"
    yield "proposer trained alone has player and writer, whose weights it shares, forget within a few rollouts."
    yield ""
    keys = ("final", "blanked_context")
    cells = []
    for name in ARMS:
        if not (of := runs.get(name, {})):
            cells.append([name, "not measured", "", ""])
            continue
        values = [interval([of[seed][key] for seed in sorted(of)]) for key in keys]
        apart = differences(of, runs.get(BASE, {}), "final")
        cells.append([name, *values, interval(apart, signed=True) if name != BASE and apart else ""])
    yield table(["arm", "success", "context blanked", "less the base"], cells)
    yield ""


def main() -> None:
    """Train what is missing, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--page_only", action="store_true", help="train nothing")
    options = parser.parse_args()
    root = options.runs.resolve()
    for seed in () if options.page_only else options.seeds:
        for arm in options.arms:
            train(root, arm, seed, "--config", CONFIG, "--torch_threads", "1", *ARMS[arm], budget=BUDGET)
    kept = json.loads((RESULTS / "signals.json").read_text())
    runs: dict[str, Any] = {arm: dict(kept.get("proposals", {}).get(arm, {})) for arm in ARMS}
    for arm, of in runs.items():
        of.update((seed, measured(folder)) for seed, folder in finished(root, arm))
    kept["proposals"] = {arm: of for arm, of in runs.items() if of}
    (RESULTS / "signals.json").write_text(json.dumps(kept, indent=1) + "\n")
    (RESULTS / "signals.md").write_text(page(kept["runs"], kept["proposals"]))


if __name__ == "__main__":
    main()
