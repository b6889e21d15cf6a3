"""The apps, measured: references, checks, sandbox, speed, and what tiny policies learn; writes docs/results/apps.md.

    PYTHONPATH=. python tests/soak/apps.py --out docs/results/apps.json [--seeds 1 2 3] [--page_only]

Each training is `python -m cod_lightning fit --config CONFIG --seed_everything SEED` into a folder of its own under `--runs`.
Finished runs are kept, so that the command goes on where it was stopped. What is not among `--runs` any more stays as the
file has it; `--page_only` reads runs and measures nothing else. What has no run is listed as not measured.
"""

import argparse
import copy
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

from cod_lightning.envs.apps import Apps
from cod_lightning.envs.apps.actions import CodeActions
from cod_lightning.envs.apps.agent import AppCall
from cod_lightning.envs.apps.catalog import APPS
from cod_lightning.envs.apps.checks import checks
from cod_lightning.envs.base import Reference
from cod_lightning.envs.task_world import TaskWorld
from cod_lightning.markdown import table
from cod_lightning.types import Pack, Split
from tests.envs.apps.escapes import ESCAPES
from tests.envs.apps.hostile import ENDPOINTS, hostile_calls, logged_in
from tests.envs.apps.played import damaged, solved, specs, successes
from tests.envs.scripted_life import live
from tests.soak.memory_page import interval

WORLDS: dict[str, Any] = {
    "apps": {"spare_calls": 2},
    "apps, 1 call to spare": {"spare_calls": 1},
    "apps_json": {"actions": "json", "quirks": 1, "spare_calls": 2, "difficulties": (1,)},
    "apps_hard": {
        "actions": "qwen", "quirks": 5, "max_turns": 24, "spare_calls": 2, "difficulties": (2, 3), "split_by": ("facts", "template")
    },
    "apps_compact": {"protocol": "compact", "max_turns": 3},
}  # fmt: skip
"""As the shipped files set them."""
NUM_PACKS = 250
TRAININGS: dict[str, tuple[str, ...]] = {
    "CoD (REC, contexts)": ("experiment/apps_compact",),
    "LOOP, contexts": ("experiment/apps_compact", "method=loop"),
    "LOOP, per token": ("experiment/loop_apps",),
    "LOOP, per turn": ("experiment/loop_apps", "loss=loop_turn"),
    "LOOP, per rollout": ("experiment/loop_apps", "loss=loop_episode"),
    "GRPO": ("experiment/loop_apps", "method=grpo"),
    "REC": ("experiment/loop_apps", "method=rec"),
}
"""Config and choices."""


def references() -> dict[str, Any]:
    """Success by position, mean reward, and success by difficulty, of every reference in every configuration."""
    found: dict[str, Any] = {}
    for name, options in WORLDS.items():
        env = Apps(**options)
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


def _lived(env: TaskWorld[Any], pack: Pack, kind: Reference, seed: int, *, forgets: bool) -> list[Any]:
    """A lifecycle; of one who forgets, every task is played as the first of a pack."""
    player = env.reference(kind, pack)
    if not forgets:
        return live(env, pack, player, env.protocol, seed)  # pyright: ignore[reportAttributeAccessIssue]
    singles = [replace(pack, tasks=(task,)) for task in pack.tasks]
    return [live(env, one, player, env.protocol, seed + n)[0] for n, one in enumerate(singles)]  # pyright: ignore[reportAttributeAccessIssue]


def guarded() -> dict[str, Any]:
    """What must never happen, counted."""
    caught, tasks = 0, 0
    rng, missed = random.Random(1), list[str]()
    for task in specs(Apps(quirks=2), 1_000):
        server = solved(task)
        tasks += all(check.passed for check in checks(task.expected(), server.db, server.answer, server.finished))
        if tasks <= 500:
            after, damage = damaged(server.db, rng)
            ok = all(check.passed for check in checks(task.expected(), after, server.answer, server.finished))
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
        "mutations_caught": caught, "mutations_missed": missed,
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
    line = code.spelled([AppCall("directory.teams", {})])
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
        live(
            env,
            replace(pack, tasks=pack.tasks[:3]),
            env.reference(Reference.ORACLE, pack),
            "natural",
        )
        env.reset(options={"task": pack.tasks[3]})
        kept.append(env)
    return {"before": round(before), "with_256": round(_peak_mib())}


def _folder(name: str, seed: int) -> str:
    return "_".join([*re.findall(r"\w+", name.lower()), str(seed)])


def train(name: str, seed: int, runs: Path) -> None:
    """One run; nothing where it is finished."""
    folder = runs / _folder(name, seed)
    if not (folder / "evaluation.json").is_file():
        config, *choices = TRAININGS[name]
        command = [
            "fit",
            "--config",
            config,
            *choices,
            "--seed_everything",
            str(seed),
            "--trainer.default_root_dir",
            str(folder),
        ]
        subprocess.run([sys.executable, "-m", "cod_lightning", *command, "--torch_threads", "1"], check=True)


def learned(runs: Path, seeds: Sequence[int], found: dict[str, Any]) -> dict[str, Any]:
    """Curves by training, condition and seed; `found` holds those of earlier runs."""
    for name in TRAININGS:
        for seed in seeds:
            file = runs / _folder(name, seed) / "evaluation.json"
            if file.is_file():
                suite = json.loads(file.read_text())["suites"]["held_out"]
                curves = {one: [p["success"] for p in curve] for one, curve in suite["controls"].items()}
                curves["trained"] = [p["success"] for p in suite["positions"]]
                for condition in curves.keys() - {"random", "memoryless", "scripted", "oracle"}:
                    found.setdefault(name, {}).setdefault(condition, {})[str(seed)] = curves[condition]
    return found


def page(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    command = "`PYTHONPATH=. python tests/soak/apps.py --out docs/results/apps.json`"
    lines = ["# Apps, measured", "", f"{command} writes this page.", *ABOUT, "", "## References", "", *REFERENCES, ""]
    rows = [
        [
            f"`{world}`", label, *(f"{one:.3f}" for one in of["success"]), f"{of['reward']:.3f}",
            *(f"{of['by_difficulty'][level]:.3f}" if level in of["by_difficulty"] else "" for level in "123"),
        ]
        for world, every in results["references"].items() for label, of in every.items()
    ]  # fmt: skip
    head = ["environment", "reference", *map(str, range(4)), "reward", "1 app", "2 apps", "3 or more"]
    lines += [table(head, rows), ""]
    guard, fast = results["guarded"], results["speed"]
    lines += [
        "## Tasks, checks, sandbox", "",
        f"- Informed play solves {guard['solved_by_oracle']:,} of 1,000 tasks; random calls solve "
        f"{guard['random_success']:.1%} of 1,000.",
        f"- After informed play, one more row was changed, deleted or doubled at random: {guard['mutations_caught']} of 500 such "
        "damages fail a check.",
        f"- Of {guard['escapes']} programs that try to get out of the sandbox or to use up what it runs on (imports, dunder walks, "
        f"recursion, memory, fork, time, output), {guard['escapes_refused']} end refused or with an error and change nothing; the "
        f"slowest takes {guard['slowest_escape_s']} s of computing. `tests/envs/apps/escapes.py` lists them.",
        f"- {guard['hostile_calls']:,} calls with hostile names and arguments raise nothing but the site's own errors; "
        f"{guard['hostile_answered']:,} of them are answered.", "",
        "## Speed, one core", "",
        table(
            ["what", "measured", "wanted"],
            [
                ["calls a second, half of them writes", f"{fast['calls_per_s']:,}", "5,000"],
                ["turns of code a second, one call each", f"{fast['code_turns_per_s']:,}", ""],
                ["a snapshot in the middle of a task", f"{fast['snapshot_us']:.0f} us", "200 us"],
                [
                    "256 lifecycles with packs of their own",
                    f"{fast['memory_mib']['with_256']} MiB, {fast['memory_mib']['before']} of them Python and imports", "1,024 MiB",
                ],
            ],
        ),
        "",
        "## What a tiny policy learns", "", *LEARNED, "",
    ]  # fmt: skip
    rows = []
    for name in TRAININGS:
        conditions = results["learned"].get(name, {"trained": {}})
        for condition, seeds in sorted(conditions.items(), key=lambda one: one[0] != "trained"):
            curves = list(seeds.values())
            columns = [interval([curve[n] for curve in curves]) for n in range(min(map(len, curves), default=1))]
            rows.append([name, condition.replace("_", " "), str(len(curves)), *columns, *[""] * (4 - len(columns))])
    lines += [table(["training", "condition", "seeds", *map(str, range(4))], rows), "", *_compared(results["learned"])]
    lines += ["## Limits", "", *LIMITS, ""]
    return "\n".join(lines)


def _compared(curves: dict[str, Any]) -> list[str]:
    """Differences at the last task, paired by seed."""
    (cod, loop, alone), trained = list(TRAININGS)[:3], "trained"
    pairs = [((cod, trained), (loop, trained)), ((cod, trained), (alone, trained)), ((loop, trained), (alone, trained))]
    pairs += [((name, trained), (name, "warm_start_t0.3")) for name in (cod, loop, alone)]
    lines = ["Differences at the last task, paired by seed:", ""]
    for one, other in pairs:
        here, there = (curves.get(name, {}).get(condition, {}) for name, condition in (one, other))
        if seeds := sorted(here.keys() & there.keys()):
            said = interval([here[seed][-1] - there[seed][-1] for seed in seeds])
            less = "its warm start at T=0.3" if other[1] != trained else other[0]
            lines.append(f"- {one[0]} less {less}: {said}, {len(seeds)} seeds")
    return [*lines, ""]


ABOUT = """
Twelve apps, 136 calls, 40 kinds of tasks over a person's mail, calendar, money and so on; hidden are quirks of the site and habits
of the person. [What it is](../worlds.md).
""".rstrip().splitlines()
REFERENCES = """
Success by position in 250 packs of 4 of the test split, mean reward, and success by the number of apps of a task. *scripted* knows
every documented call, tries, reads errors and notes what they show; *memoryless* plays as if each task were its first; *oracle*
knows what is hidden. By how much *scripted* exceeds *memoryless* at positions 1 to 3 is what a context can be worth to a
player that makes no other mistake.
""".strip().splitlines()
LEARNED = """
Compact words, tiny policy (0.2 M parameters), the recipe of the quick start, held-out packs whose hidden facts no training pack
has. Means with 95 % intervals over seeds (Student's t) where there are several; seed 1 of the LOOP rows and of CoD is of an earlier
commit. What has no contexts plays packs of four, too, and nothing is carried from task to task; LOOP is as published then. All make
60 rollouts of 1,024 tasks; without contexts fewer tokens are sampled.
""".strip().splitlines()
LIMITS = """
- The tiny policy chooses beliefs, not calls: a word is carried out by a scripted plan through the same calls and checks.
- The template lists the calls of `user` as tools (`actions: tools`); all others are documented by `user.docs`.
- Not measured: language models in this environment, a simulated user that is a model.
""".strip().splitlines()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/soak_apps"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--trainings", nargs="+", choices=tuple(TRAININGS), default=list(TRAININGS))
    parser.add_argument("--page_only", action="store_true", help="Only read runs; keep the rest of the file.")
    parser.add_argument("--train_only", action="store_true", help="Write no page.")
    parser.add_argument("--memory", action="store_true", help="Only print MiB of 256 lifecycles.")
    args = parser.parse_args()
    if args.memory:
        print(json.dumps(memory()))
        return 0
    for seed in () if args.page_only else args.seeds:
        for name in args.trainings:
            train(name, seed, args.runs)
    if args.train_only:
        return 0
    results = json.loads(args.out.read_text()) if args.out.is_file() else {}
    if not args.page_only:
        results |= {"references": references(), "guarded": guarded(), "speed": speed()}
    results["learned"] = learned(args.runs, args.seeds, results.get("learned", {}))
    args.out.write_text(json.dumps(results, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
