"""Further ways to learn, each against plain GRPO on uniform packs: an easy and a hard setting mixed, equal sampled tokens, seeds.

    PYTHONPATH=. python examples/studies/signals.py --runs runs/signals [--arms uniform ...] [--seeds 1 2 3] [--page_only]

Every arm of `ARMS` is `python -m cod_lightning fit --config examples/studies/levers_mixture.yaml` with the arguments of the
arm, from one warm start a seed; it ends with the rollout in which it has sampled `BUDGET` tokens. Finished runs are kept, and a
run that was stopped goes on, so that the command may be stopped at any time; with other arms or seeds it may run beside itself.
It writes `docs/results/signals.json` and `signals.md` from whatever is finished; runs that the folder lacks stay in the JSON as
they were, and what has none is listed as not measured.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from cod_lightning.evaluation.crossed import holm, seed_estimate
from cod_lightning.markdown import table
from cod_lightning.reports import curves

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
LAST = "report.html"
"""What a run writes last; its evaluation.json is there before its warm start is played."""
BASE = "uniform"
LATER = "uniform, by later code"
JUDGES = "Judges in place of the reward"
BUDGET = 200_000
SETTINGS = ("easy", "hard")
NUM_POSITIONS = 4


Runs = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""What was measured, by arm and seed."""


@dataclass(frozen=True)
class Arm:
    """One way to train."""

    section: str
    """Heading of its table."""
    arguments: tuple[str, ...]
    """After the config; a later one wins."""
    base: str = BASE
    """What it is compared with: the arm without its arguments, from the same warm starts."""


def noisy(share: float) -> tuple[str, ...]:
    """Training by a judge alone that errs in that share of tasks, solved or not."""
    errors = {"false_positive": share, "false_negative": share}
    judge = {"class_path": "cod_lightning.methods.noisy.NoisyJudge", "init_args": errors}
    return ("method=grpo", "--data.rewards", json.dumps(WITHOUT_WORLD | {"judge": judge}))


def comparing(share: float) -> tuple[str, ...]:
    """Training by comparisons of siblings alone, of which that share is wrong."""
    judge = {"class_path": "cod_lightning.methods.noisy.NoisyPairwiseJudge", "init_args": {"error": share}}
    return ("method=grpo", "--data.rewards", json.dumps(WITHOUT_WORLD | {"judge": judge}))


HALF, LEARNED = "reward on half of the tasks", "half learned"
WITHOUT_WORLD = {"world": {"class_path": "cod_lightning.rewards.WorldReward", "init_args": {"weight": 0.0}}}


def partly(**learned: str) -> tuple[str, ...]:
    """Training where half of the tasks have a reward."""
    part = {"class_path": "cod_lightning.methods.learned_reward.PartlyKnown", "init_args": {"share": 0.5, **learned}}
    return ("method=grpo", "--data.rewards", json.dumps(WITHOUT_WORLD | {"known": part}))


FACTS = {"class_path": "examples.studies.new_facts.NewFacts", "init_args": {"pattern": "[0-9]=[a-z]+"}}

ARMS: dict[str, Arm] = {
    BASE: Arm("The base", ("method=grpo",)),
    LATER: Arm("The base", ("method=grpo",), LATER),
    # replay
    "self-imitation": Arm(
        "Replay", ("method=grpo", "replay=SelfImitation", "--data.replay.init_args.warmup_rollouts", "10")
    ),
    "replay for packs without signal": Arm("Replay", ("method=grpo", "replay=SignalReplay")),
    # expert iteration and preference
    "rejection sampling, by episode": Arm("Expert iteration and preference", ("method=reinforce", "baseline=Accepted")),
    "rejection sampling, by lifecycle": Arm(
        "Expert iteration and preference", ("method=reinforce", "baseline=Accepted", "credit=TrajectoryCredit")
    ),
    "SDPO": Arm("Expert iteration and preference", ("method=sdpo",)),
    "SDPO, beta 1": Arm("Expert iteration and preference", ("method=sdpo", "--model.loss.init_args.beta", "1.0")),
    "NFT": Arm("Expert iteration and preference", ("method=nft",)),
    "NFT without failures": Arm(
        "Expert iteration and preference", ("method=nft", "--model.loss.init_args.negative_weight", "0.0")
    ),
    # curricula
    "SEC, bandit over settings": Arm(
        "Curricula", ("method=grpo", "source=Bandit", "--data.source.init_args.temperature", "0.1")
    ),
    "ScalingInter-RL, growing turns": Arm(
        "Curricula",
        (
            *("method=grpo", "source=Growth", "--data.source.init_args.rollouts_per_stage", "5"),
            *("--data.source.init_args.num_tasks", "null", "--data.source.init_args.max_turns", "[1, 2, 4]"),
        ),
    ),
    "growing packs": Arm(
        "Curricula",
        (
            *("method=grpo", "source=Growth", "--data.source.init_args.rollouts_per_stage", "5"),
            *("--data.source.init_args.num_tasks", "[2, 3, 4]"),
        ),
    ),
    "SFL, learnability": Arm("Curricula", ("method=grpo", "source=Revisits")),
    "eva, regret": Arm("Curricula", ("method=grpo", "source=Revisits", "source.by=regret", "source.back=near")),
    "WebRL, failures": Arm("Curricula", ("method=grpo", "source=Revisits", "source.by=failure", "source.back=near")),
    "ExIt, own history": Arm("Curricula", ("method=grpo", "source=Revisits", "source.back=continued")),
    # roles
    "writer alone": Arm("Roles", ("method=grpo", "--model.trained_kinds", "[update]")),
    "player alone": Arm("Roles", ("method=grpo", "--model.trained_kinds", "[solve]")),
    "writer for a frozen player": Arm(
        "Roles",
        (
            "method=grpo",
            "--model.trained_kinds",
            "[update]",
            "--data.frozen",
            "FrozenRole",
            "--data.frozen.kind",
            "solve",
        ),
    ),
    "player for a frozen writer": Arm(
        "Roles",
        (
            "method=grpo",
            "--model.trained_kinds",
            "[solve]",
            "--data.frozen",
            "FrozenRole",
            "--data.frozen.kind",
            "update",
        ),
    ),
    # judges
    "judge, 10 % wrong": Arm(JUDGES, noisy(0.1)),
    "judge, 25 % wrong": Arm(JUDGES, noisy(0.25)),
    "judge, 40 % wrong": Arm(JUDGES, noisy(0.4)),
    "pairwise judge, 10 % wrong": Arm(JUDGES, comparing(0.1)),
    "pairwise judge, 25 % wrong": Arm(JUDGES, comparing(0.25)),
    "pairwise judge, 40 % wrong": Arm(JUDGES, comparing(0.4)),
    # parts of the reward
    HALF: Arm("Learned rewards", partly(), LATER),
    LEARNED: Arm("Learned rewards", partly(transcripts="HALF/lifecycles/train.jsonl"), LATER),
    "novel facts": Arm("Learned rewards", ("method=grpo", "--data.rewards", json.dumps({"facts": FACTS})), LATER),
}


def folder_of(root: Path, arm: str, seed: int) -> Path:
    """Where a run is kept."""
    return root / f"{arm.replace(', ', '_').replace(' ', '_')}_{seed}"


def train(root: Path, name: str, seed: int, *arguments: str, budget: int = BUDGET) -> None:
    """`fit` with these arguments where it is not finished."""
    folder = folder_of(root, name, seed)
    if (folder / LAST).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    bounds = ["--sampled_token_budget", str(budget), "--trainer.max_epochs", "-1", "--data.rollouts_per_epoch", "4"]
    place = ["--ckpt_path", "auto", "--trainer.default_root_dir", str(folder), "--seed_everything", str(seed)]
    begun = time.perf_counter()
    command(root, "fit", *arguments, *bounds, *place)
    print(f"{name}, seed {seed}: {time.perf_counter() - begun:.0f} s", flush=True)


def command(root: Path, *arguments: str) -> None:
    """Run `python -m cod_lightning` with these arguments; end with its output where it fails."""
    env = os.environ | {"COD_LIGHTNING_CACHE": str(root / "cache"), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-m", "cod_lightning", *arguments]
    done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}")


def finished(root: Path, arm: str) -> Iterator[tuple[str, Path]]:
    """Seeds and folders of an arm's finished runs."""
    for seed in range(1, 100):
        if ((folder := folder_of(root, arm, seed)) / LAST).exists():
            yield str(seed), folder


def ends(folder: Path) -> dict[str, list[float]]:
    """pass@K and entropy of a finished run, each of its first update and in the mean of late ones."""
    return {name: list(of) for name, of in curves.ends(curves.read_metrics(folder)[0]).items()}


def first_to_late(runs: Iterable[Mapping[str, Any]], name: str) -> str:
    """One of the ends in the mean over those runs that recorded it, first and late."""
    known = [one["ends"][name] for one in runs if name in one["ends"]]
    return " to ".join(f"{mean(values):.2f}" for values in zip(*known, strict=True))


def agreement(folder: Path) -> dict[str, float]:
    """How often the environment agrees with a judge in training, as `agreement`; empty where transcripts lack verdict or success.

    With a verdict on an episode: the share of tasks where a score of 0.5 or more is one of a solved task, and another is not. With
    one on siblings: of two at a task of which one solved it, the share where that one has the higher score, equal ones half.
    """
    lives = {}  # the last of those that a run which was stopped played twice
    for line in (folder / "lifecycles" / "train.jsonl").read_text().splitlines():
        life = json.loads(line)
        lives[life["step"], life["pack"]["id"], life["sibling"]] = life["episodes"]
    tasks: dict[Any, list[tuple[float, bool]]] = defaultdict(list)
    for (step, pack, _), episodes in lives.items():
        for one in episodes:
            score, success = (one.get("parts") or {}).get("judge"), one["success"]
            if one["kind"] == "solve" and score is not None and success is not None:
                tasks[step, pack, one["position"]].append((score, success))
    if "pairwise" in folder.name:
        pairs = [pair for of in tasks.values() for pair in combinations(sorted(of, key=lambda one: one[1]), 2)]
        found = [float(np.sign(well - ill) + 1) / 2 for (ill, no), (well, yes) in pairs if yes and not no]
    else:
        found = [float((score >= 0.5) == success) for of in tasks.values() for score, success in of]
    return {"agreement": mean(found)} if found else {}


def measured(folder: Path) -> dict[str, Any]:
    """A finished run: final success by setting and position, area under its learning curve, tokens, and a judge's agreement.

    The curve is success on the validation packs of the mixture, mean over positions, over sampled tokens; it begins with the
    warm start's success on the suites. The area is by trapezoids, divided by the tokens: a mean success.
    """
    suites = json.loads((folder / "evaluation.json").read_text())["suites"]
    by_setting = {name: [one["success"] for one in suites[name]["positions"]] for name in SETTINGS}
    start = mean(one["success"] for name in SETTINGS for one in suites[name]["controls"]["warm_start"])
    with (folder / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    tokens, success, sampled = [0.0], [start], 0.0
    for row in rows:
        sampled = float(row["tokens/sampled"] or sampled)
        if row["val/success/position_0"]:
            tokens.append(sampled)
            success.append(mean(float(row[f"val/success/position_{n}"]) for n in range(NUM_POSITIONS)))
    return {
        "area": float(np.trapezoid(success, tokens)) / tokens[-1],
        "final": mean(mean(values) for values in by_setting.values()),
        **{name: mean(values) for name, values in by_setting.items()},
        "by_position": by_setting,
        "warm_start": start,
        "curve": [[int(t), round(s, 4)] for t, s in zip(tokens, success, strict=True)],
        "sampled_tokens": sampled,
        "trained_tokens": max(float(row["tokens/trained"] or 0) for row in rows),
        **agreement(folder),
    }


def interval(values: list[float], signed: bool = False) -> str:
    """Mean and 95 % interval over seeds."""
    one, form = seed_estimate(np.array(values)), "+.3f" if signed else ".3f"
    return f"{one.mean:{form}}" + (f" [{one.low:{form}}, {one.high:{form}}]" if one.ci95 else "")


def verdict(differences: list[float]) -> str:
    """What the interval over seeds says."""
    one = seed_estimate(np.array(differences))
    if not one.num > 1:
        return "one seed"
    return "better" if one.low > 0 else "worse" if one.high < 0 else "no difference shown"


def differences(of: Mapping[str, Mapping[str, Any]], base: Mapping[str, Mapping[str, Any]], key: str) -> list[float]:
    """From the base, in the seeds that both have."""
    return [of[seed][key] - base[seed][key] for seed in sorted(of.keys() & base.keys())]


def in_short(runs: Runs) -> list[str]:
    """Which arms differ from the base, and what is left of it once all of them are asked for at once, in words."""
    apart = {
        f"{name} ({key})": differences(of, runs.get(ARMS[name].base, {}), key)
        for name, of in runs.items()
        for key in ("area", "final")
        if name != ARMS[name].base
    }
    named = {what: [name for name, of in apart.items() if verdict(of) == what] for what in ("better", "worse")}
    said = "; ".join(f"{what} than the base: {', '.join(names) or 'none'}" for what, names in named.items())
    left = "; ".join(holm({name: seed_estimate(np.array(of)).p_value for name, of in apart.items()})) or "none"
    return [
        f"- {said.capitalize()}. Left of these {len(apart)} comparisons by Holm's correction: {left}.",
        *learned(runs),
    ]


def learned(runs: Runs) -> list[str]:
    """What a learned reward adds to one on half of the tasks, in words."""
    of, half = runs.get(LEARNED, {}), runs.get(HALF, {})
    apart = {key: differences(of, half, key) for key in ("area", "final")}
    if not apart["area"]:
        return []
    said = "; ".join(f"{key} {interval(values, signed=True)}, {verdict(values)}" for key, values in apart.items())
    more = mean(one["sampled_tokens"] for one in half.values())
    return [
        f"- {LEARNED}, less {HALF}: {said}. It learns from that run's transcripts, {round(more, -4):,.0f} tokens more."
    ]


def collapsed(runs: Runs, section: str) -> list[str]:
    """Runs whose success fell below a third of what they began with, an item each."""
    found = []
    for name, arm in ARMS.items():
        for seed, of in runs.get(name, {}).items():
            curve = [success for _, success in of["curve"]]
            if arm.section == section and min(curve) < curve[0] / 3:
                fall = f"success on the validation packs from {curve[0]:.2f} to {min(curve):.2f}, at the end {curve[-1]:.2f}"
                found.append(f"- Seed {seed} of {name} collapsed: {fall}.")
    return found


def page(runs: Runs, proposals: Runs) -> str:
    """The results as Markdown, in the order of `ARMS`, then those of `proposals.py`."""
    from examples.studies.proposals import section as of_proposals  # which needs this module

    runs = {name: runs[name] for name in ARMS if name in runs}
    rows = []
    for name in (name for name in runs if name not in HIDDEN):
        base = runs.get(ARMS[name].base, {}) if name != ARMS[name].base else {}
        apart = differences(runs[name], base, "final")
        final = f"{mean(one['final'] for one in runs[name].values()):.3f}"
        rows.append([name, str(len(runs[name])), final, interval(apart, signed=True) if apart else ""])
    head = ["arm", "seeds", "success", "less the base"]
    later = f"{mean(one['final'] for one in runs[LATER].values()):.3f}"
    lines = ["# Further signals, measured", "", *ABOUT.strip().format(budget=BUDGET, later=later).splitlines(), ""]
    lines += [table(head, rows), "", *in_short(runs)]
    lines += [line for one in dict.fromkeys(arm.section for arm in ARMS.values()) for line in collapsed(runs, one)]
    return "\n".join([*lines, "", *of_proposals(proposals), LIMITS.strip(), ""])


ABOUT = """
**Does a replay, a curriculum, a role, a judge or a learned reward help?** Each arm is `fit --config
examples/studies/levers_mixture.yaml` with the arguments in [signals.json](signals.json): compact levers, half of the packs with
four pulls a task, half with one. Arms of a seed begin with one warm start and end when {budget:,} tokens are sampled.

    PYTHONPATH=. python examples/studies/signals.py --runs runs/signals

Success is *final*, the mean over positions and both settings; *area* is the mean on validation packs over sampled tokens. The base
is `uniform`, for the last three rows the same with later code ({later}); differences are paired by seed, with 95 % intervals over
seeds (Student's t). Variants of SDPO, NFT and rejection sampling, growing packs and judges wrong in 10 and 25 % are in the JSON.
"""
HIDDEN = (
    *(LATER, "rejection sampling, by lifecycle", "SDPO, beta 1", "NFT without failures", "growing packs"),
    *(f"{kind}, {share} % wrong" for kind in ("judge", "pairwise judge") for share in (10, 25)),
)
"""Arms whose rows are in the JSON alone."""
LIMITS = """
**Limits.** One easy and one hard setting of one environment, tiny policies, three or four seeds: intervals are wide.
"""


def main() -> None:
    """Train what is missing, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--page_only", action="store_true", help="train nothing")
    options = parser.parse_args()
    root = options.runs.resolve()
    if not options.page_only:
        for seed in options.seeds:
            for arm in options.arms:
                own = (one.replace("HALF", str(folder_of(root, HALF, seed))) for one in ARMS[arm].arguments)
                train(root, arm, seed, "--config", "examples/studies/levers_mixture.yaml", *own)
    kept = json.loads((RESULTS / "signals.json").read_text())
    runs: dict[str, Any] = {arm: kept["runs"].get(arm, {}) for arm in ARMS if arm in kept["runs"]}
    for arm in ARMS:
        runs.setdefault(arm, {}).update((seed, measured(folder)) for seed, folder in finished(root, arm))
    runs = {arm: runs[arm] for arm in ARMS if runs[arm]}
    found = kept | {"budget": BUDGET, "arms": {name: list(ARMS[name].arguments) for name in runs}, "runs": runs}
    (RESULTS / "signals.json").write_text(json.dumps(found, indent=1) + "\n")
    (RESULTS / "signals.md").write_text(page(runs, found.get("proposals", {})))


if __name__ == "__main__":
    main()
