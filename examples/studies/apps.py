"""The apps, measured: references, checks, sandbox, speed, and what tiny policies learn; writes docs/results/apps.md.

    PYTHONPATH=. python examples/studies/apps.py --out docs/results/apps.json [--seeds 1 2 3 4 5]
        [--trainings REC ...] [--page_only] [--code RUN ...]

Each training of `TRAININGS` is `python -m cod_lightning fit` from one warm start a seed, in a folder of its own under `--runs`; it
ends with the rollout in which it has sampled `BUDGET` tokens. Finished runs are kept, and a run that was stopped goes on, so that
the command may be stopped at any time; with other trainings or seeds it may run beside itself. `--page_only` reads runs and
measures nothing else. What is not among `--runs` any more stays as the file has it, if it was trained with that budget and those
arguments; what has no run is listed as not measured.
"""

import argparse
import copy
import csv
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import yaml

from cod_lightning.envs.apps import Apps
from cod_lightning.envs.apps.actions import CodeActions
from cod_lightning.envs.apps.catalog import APPS
from cod_lightning.envs.apps.checks import checks
from cod_lightning.envs.apps.templates import CONFIRMED
from cod_lightning.envs.base import Players, Reference, beside
from cod_lightning.envs.task_world import TaskWorld
from cod_lightning.envs.tool_calls import ToolCall
from cod_lightning.envs.ways import AppsWays
from cod_lightning.rollout import transcript
from cod_lightning.types import Group, Pack, Role, Split
from examples.studies.apps_page import page
from examples.studies.signals import ends, finished, train
from tests.envs.apps.escapes import ESCAPES
from tests.envs.apps.hostile import ENDPOINTS, hostile_calls, logged_in
from tests.envs.apps.played import damaged, solved, specs, successes
from tests.envs.scripted_life import live

WORLDS: dict[str, Any] = {
    "apps": {"spare_calls": 2},
    "apps, 1 call to spare": {"spare_calls": 1},
    "apps_json": {"actions": "json", "quirks": 1, "spare_calls": 2, "difficulties": (1,)},
    "apps_hard": {
        "actions": "qwen", "quirks": 5, "max_turns": 24, "spare_calls": 2, "difficulties": (2, 3), "split_by": ("facts", "template")
    },
    "apps_confirm": {"spare_calls": 2, "patience": 3, "templates": tuple(CONFIRMED)},
}  # fmt: skip
"""As the shipped files set them. `apps_compact` is another class."""
AT_SIZE: dict[str, Any] = {"quirks": 0, "difficulties": (1, 2), "max_turns": 40}
NUM_PACKS = 250
BUDGET = 320_000
"""Tokens that every training samples."""
TRAININGS: dict[str, tuple[str, ...]] = {
    "REC, contexts": ("examples/studies/apps_compact.yaml", "method=rec"),
    "GRPO, contexts": ("examples/studies/apps_compact.yaml", "method=grpo"),
    "LOOP, contexts": ("examples/studies/apps_compact.yaml", "method=loop"),
    "LOOP, per token": ("examples/studies/loop_apps.yaml",),
    "LOOP, per turn": ("examples/studies/loop_apps.yaml", "--model.loss.level", "turn"),
    "LOOP, per rollout": ("examples/studies/loop_apps.yaml", "--model.loss.level", "episode"),
    "GRPO": ("examples/studies/loop_apps.yaml", "method=grpo"),
    "REC": ("examples/studies/loop_apps.yaml", "method=rec"),
}
"""Config and choices. REC with contexts is CoD."""


def references() -> dict[str, Any]:
    """Success by position, mean reward, and success by difficulty, of every reference in every configuration."""
    found: dict[str, Any] = {}
    worlds: dict[str, Any] = {name: Apps(**options) for name, options in WORLDS.items()}
    for name, env in {**worlds, "apps_compact": AppsWays()}.items():
        packs = [env.sample_pack(split=Split.TEST, index=index, num_tasks=4) for index in range(NUM_PACKS)]
        found[name] = {}
        for label, kind, known in (
            ("random", Reference.RANDOM, env),
            ("memoryless", Reference.SCRIPTED, None),
            ("scripted", Reference.SCRIPTED, env),
            ("oracle", Reference.ORACLE, env),
        ):
            lives = [_lived(env, pack, kind, seed, forgets=known is None) for seed, pack in enumerate(packs)]
            levels: dict[int, list[bool]] = {}
            for pack, life in zip(packs, lives, strict=True):
                for task, lived in zip(pack.tasks, life, strict=True):
                    levels.setdefault(task.spec.kind.difficulty, []).append(lived.success)
            found[name][label] = {
                "success": [mean(life[n].success for life in lives) for n in range(4)],
                "reward": mean(one.reward for life in lives for one in life),
                "by_difficulty": {str(level): mean(won) for level, won in sorted(levels.items())},
            }
    return found


def calls_by_level() -> dict[str, list[float]]:
    """Mean, fewest and most calls of informed play in test tasks of `apps`, by difficulty."""
    env, levels = Apps(**WORLDS["apps"]), dict[str, list[int]]()
    for task in specs(env, 4 * NUM_PACKS, Split.TEST):
        levels.setdefault(str(task.kind.difficulty), []).append(task.budget - env.spare_calls)
    return {level: [mean(found), min(found), max(found)] for level, found in sorted(levels.items())}


def code_demonstrations() -> dict[str, float]:
    """What a policy would have to write at LOOP's setting (`experiment/loop_apps_8b`): means over 180 tasks of informed play."""
    env, whole, written, turns, new, seen = (
        Apps(**AT_SIZE),
        list[int](),
        list[int](),
        list[int](),
        list[float](),
        set[str](),
    )
    for index in range(60):
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=3)
        for task in live(env, pack, Reference.ORACLE, index):
            responses = [one.content for one in task.messages if one.role is Role.ASSISTANT]
            words = set(re.findall(r"\w+", " ".join(responses)))
            turns.append(len(responses))
            written.append(sum(map(len, responses)))
            whole.append(sum(len(one.content) for one in task.messages))
            new.append(len(words - seen) / len(words))
            seen |= words
    return {"turns": mean(turns), "written": mean(written), "whole": mean(whole), "new": mean(new[len(new) // 2 :])}


def code_model(run: Path) -> tuple[str, dict[str, Any]]:
    """Kinds, demonstrated tasks and seed of a run with `examples/studies/apps_code.yaml`; what it solves by code, by policy."""
    config: dict[str, Any] = yaml.safe_load((run / "config.yaml").read_text())
    shown = config["warm_start"]["num_updates"] * config["warm_start"]["packs_per_update"] * config["data"]["pack_size"]
    found: dict[str, Any] = {}
    for name, suite in json.loads((run / "evaluation.json").read_text())["suites"].items():
        for policy, area in suite["figures"]["area"].items():
            if policy == "trained" and not (run / "checkpoints").is_dir():  # of `test` alone: the warm start
                continue
            groups = transcript.read(run / "lifecycles" / f"test_{name}_{policy}.jsonl")
            lives = [life for group in groups for life in group.lifecycles if not life.failed]
            packs = [[bool(one.success) for one in life.solves] for life in lives]
            greedy = name == "code_greedy"
            key = f"{policy}_t0.0" if greedy and policy in ("trained", "warm_start") else policy
            found[key] = {
                "tasks": sum(map(len, packs)),
                "tgc": [area["success"]["mean"], *area["success"]["ci95"]],
                "sgc": [sum(map(all, packs)), len(packs)],
                "kinds": _by_kind(groups),
            }
            if less := suite["figures"]["differences"].get(policy):
                bounds = [less["success"]["mean"], *less["success"]["ci95"]]
                found[key]["greedy_less" if greedy else "trained_less"] = bounds
    if (train := run / "lifecycles" / "train.jsonl").exists():
        found["training"] = {"kinds": _by_kind(transcript.read(train))}
    kinds = len(config["data"]["env"]["init_args"]["templates"])
    return f"{kinds} kinds, {shown} tasks, seed {config['seed_everything']}", found


def _by_kind(groups: Sequence[Group]) -> dict[str, list[int]]:
    """Tasks solved and played, by kind."""
    kinds: dict[str, list[bool]] = {}
    for group in groups:
        for one in (one for life in group.lifecycles if not life.failed for one in life.solves):
            spec: Any = group.pack.tasks[one.position].spec
            kinds.setdefault(spec["template"], []).append(bool(one.success))
    return {kind: [sum(of), len(of)] for kind, of in sorted(kinds.items())}


def _lived(env: TaskWorld[Any], pack: Pack, kind: Reference, seed: int, *, forgets: bool) -> list[Any]:
    """A lifecycle; of one who forgets, every task is played as the first of a pack."""
    if not forgets:
        return live(env, pack, kind, seed)
    player = beside(env, Players).reference(kind, pack)
    singles = [replace(pack, tasks=(task,)) for task in pack.tasks]
    return [live(env, one, player, seed + n)[0] for n, one in enumerate(singles)]


def guarded() -> dict[str, Any]:
    """What must never happen, counted."""
    caught, tasks = 0, 0
    rng, missed, idle = random.Random(1), list[str](), list[float]()
    for task in specs(Apps(quirks=2), 1_000):
        idle.append(mean(check.passed for check in checks(task.expected(), task.expected().before, "", True)))
        server = solved(task)
        tasks += all(check.passed for check in task.checked(server))
        if tasks <= 500:
            after, damage = damaged(server.db, rng)
            found = checks(task.expected(), after, server.answer, server.finished, server.replies)
            ok = all(check.passed for check in found)
            caught += not ok
            missed += [f"{task.text}: {damage}"] if ok else []
    (task,) = specs(Apps(quirks=0), 1)
    refused, slowest = 0, 0.0
    for code in ESCAPES.values():
        actions, server = CodeActions([app.name for app in APPS]), task.server(patience=1)
        began = time.process_time()
        shown = actions.run(code, server)
        slowest = max(slowest, time.process_time() - began)
        last = shown.splitlines()[-1]
        stopped = last.startswith(("refused: ", "error ")) or last.partition(":")[0].endswith("Error")
        refused += stopped and not server.db.changes(task.expected().before)
    fuzzed = task.server(patience=1)
    fuzzed.budget = 10**9
    answered = hostile_calls(fuzzed, random.Random(2), 20_000)
    return {
        "solved_by_oracle": tasks, "random_success": mean(successes(Apps(), Reference.RANDOM, 1_000)),
        "checks_without_a_call": mean(idle), "mutations_caught": caught, "mutations_missed": missed,
        "escapes": len(ESCAPES), "escapes_refused": refused, "slowest_escape_s": round(slowest, 3), "hostile_calls": 20_000,
        "hostile_answered": answered,
    }  # fmt: skip


def speed() -> dict[str, Any]:
    """Calls a second, snapshots, and memory of 256 lifecycles, each with a pack of its own."""
    (task,) = specs(Apps(quirks=0), 1)
    server = task.server(patience=1)
    server.budget = 10**9
    tokens = {app.name: logged_in(server, app.name) for app in APPS if app.private}
    reads = [
        one
        for one in ENDPOINTS
        if not one.writes and one.name != "login" and not any(p.required for p in one.parameters)
    ]
    calls = [
        (f"{one.app}.{one.name}", {"token": tokens[one.app]} if one.private else {})
        for one in reads
        if one.name != "done"
    ]
    note = {"token": tokens["notes"], "title": "a", "text": "b"}
    clean, rates = server.db.copy(), list[float]()
    for _ in range(20):
        server.db = clean.copy()
        began = time.process_time()
        for name, arguments in calls:
            server.call(name, arguments)
            server.call("notes.create", note)
        rates.append(2 * len(calls) / (time.process_time() - began))
    env = Apps(quirks=0, spare_calls=50)
    env.reset(options={"task": env.sample_pack(split=Split.TRAIN, index=0, num_tasks=1).tasks[0]})
    env.step("<answer>keys = user.passwords()\nfound = directory.people()</answer>")
    snapshots = list[float]()
    for _ in range(1_000):
        began = time.perf_counter()
        copy.deepcopy(env)
        snapshots.append(1e6 * (time.perf_counter() - began))
    code = CodeActions([app.name for app in APPS])
    line = code.spelled([ToolCall("directory.teams", {})])
    text, turns = code.read(line)[0], 2_000
    began = time.process_time()
    for _ in range(turns):
        code.run(text, server)
    output = subprocess.run([sys.executable, __file__, "--memory"], capture_output=True, text=True, check=True).stdout
    return {
        "calls_per_s": round(median(rates)), "snapshot_us": round(median(snapshots), 1),
        "code_turns_per_s": round(turns / (time.process_time() - began)), "memory_mib": json.loads(output),
    }  # fmt: skip


def _peak_mib() -> float:
    """The most that this process has held; what `getrusage` says begins with its parent's."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None, "a system with /proc"
    return int(found[1]) / 1024


def memory() -> dict[str, float]:
    """MiB before any environment, and with 256 lifecycles that have played three of their four tasks."""
    before = _peak_mib()
    whole, kept = Apps(), list[Apps]()
    for index in range(256):
        env = copy.deepcopy(whole)
        pack = env.sample_pack(split=Split.TRAIN, index=index, num_tasks=4)
        live(env, replace(pack, tasks=pack.tasks[:3]), beside(env, Players).reference(Reference.ORACLE, pack))
        env.reset(options={"task": pack.tasks[3]})
        kept.append(env)
    return {"before": round(before), "with_256": round(_peak_mib())}


def learned(runs: Path, before: dict[str, Any]) -> dict[str, Any]:
    """Curves by condition, tokens and rollouts of every training and seed; of `before` what this protocol trained is kept."""
    arms = {name: list(one) for name, one in TRAININGS.items()}
    same = before.get("budget") == BUDGET
    kept = {name: before["runs"].get(name, {}) for name in arms if same and before["arms"].get(name) == arms[name]}
    for name in TRAININGS:
        for seed, folder in finished(runs, name):
            kept.setdefault(name, {})[seed] = _measured(folder)
    return {"budget": BUDGET, "arms": arms, "runs": kept}


def _measured(folder: Path) -> dict[str, Any]:
    """A finished run: success by position (its mean is TGC), packs with every task solved (SGC), pass@K and entropy."""
    suites = json.loads((folder / "evaluation.json").read_text())["suites"]
    suite = suites["held_out"]
    references = ("memoryless", "scripted", "oracle")

    def curves(record: dict[str, Any]) -> dict[str, list[float]]:
        of = {"trained": record["positions"]} | record["controls"]
        return {name: [one["success"] for one in curve] for name, curve in of.items() if name not in references}

    with (folder / "metrics.csv").open(newline="") as file:
        sampled = [float(row["tokens/sampled"] or 0) for row in csv.DictReader(file)]
    return {
        "curves": curves(suite),
        "training_packs": curves(suites["training"]),
        "whole": {name: one["mean"] for name, one in suite["figures"]["whole_packs"].items() if name not in references},
        "ends": ends(folder),
        "sampled_tokens": max(sampled),
        "rollouts": len({*sampled} - {0.0}),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/soak_apps"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--trainings", nargs="+", choices=tuple(TRAININGS), default=list(TRAININGS))
    parser.add_argument("--page_only", action="store_true", help="Only read runs; keep the rest of the file.")
    parser.add_argument("--train_only", action="store_true", help="Write no page.")
    parser.add_argument("--code", type=Path, nargs="+", default=[], help="Runs with apps_code.yaml.")
    parser.add_argument("--memory", action="store_true", help="Only print MiB of 256 lifecycles.")
    args = parser.parse_args()
    if args.memory:
        print(json.dumps(memory()))
        return 0
    runs = args.runs.resolve()
    for seed in () if args.page_only else args.seeds:
        for name in args.trainings:
            train(runs, name, seed, "--config", *TRAININGS[name], "--torch_threads", "1", budget=BUDGET)
    if args.train_only:
        return 0
    results = json.loads(args.out.read_text()) if args.out.is_file() else {}
    if not args.page_only:
        results |= {"references": references(), "calls": calls_by_level(), "guarded": guarded(), "speed": speed()}
        results["code"] = code_demonstrations()
    results["code_model"] = results.get("code_model", {}) | dict(map(code_model, args.code))
    results["learned"] = learned(runs, results.get("learned", {}))
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
