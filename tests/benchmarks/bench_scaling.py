"""How time and memory grow with the length of a pack, the size of a group, turns, processes; and how commands start.

    PYTHONPATH=. python tests/benchmarks/bench_scaling.py [--repeats 5] [--threads 2] [--only packs groups turns processes commands]

A rollout of a world without content by a policy of random weights that never stops early, then an update on all its rows.
Seconds are of one process that takes the sizes in turn, since the host's speed changes. Memory is of a process for each size that
does it once: its peak in the phase above what it took before the rollout. The note of a table has the straight line through
milliseconds a lifecycle, and how far the furthest point is from it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch

from cod_lightning.contexts import HintContext
from cod_lightning.contexts.base import Words
from cod_lightning.envs.base import Vocabulary, beside
from cod_lightning.forward.freed_memory import keep_freed_memory
from cod_lightning.models import TinyPolicy
from cod_lightning.modules.grpo import GRPOModule
from cod_lightning.objective.batch import Batch
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.dialogue import Sampler
from cod_lightning.rollout.group import run_groups
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Group
from tests.benchmarks.fixed_work import Endless, FixedWork
from tests.benchmarks.packs import training_packs
from tests.benchmarks.recorded import train_on
from tests.benchmarks.results import Table, report, spread

ROOT = Path(__file__).parents[2]
SIZES: dict[str, list[dict[str, int]]] = {
    "packs": [{"tasks": n, "packs": 8, "siblings": 8, "turns": 3} for n in (4, 8, 16, 32)],
    "groups": [{"tasks": 4, "packs": 8, "siblings": k, "turns": 3} for k in (4, 8, 16, 32)],
    "turns": [{"tasks": 2, "packs": 8, "siblings": 8, "turns": t} for t in (3, 6, 12, 24)],
}
GROWS = {"packs": "tasks", "groups": "siblings", "turns": "turns"}
COMMANDS = (
    "--help",
    "worlds",
    "play --help",
    "report --help",
    "context --help",
    "fit --help",
    "plan --help",
    "sweep --help",
)


class Clock(L.Callback):
    """Seconds of the last update."""

    seconds = 0.0

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Batch, batch_idx: int) -> None:
        self.begun = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Batch, batch_idx: int
    ) -> None:
        self.seconds = time.perf_counter() - self.begun


def fresh_peak() -> float:
    """MiB in use now, from which on the peak is counted anew (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak() -> float:
    """MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


class Step:
    """A rollout of any size, and an update on it."""

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        L.seed_everything(1, verbose=False)
        keep_freed_memory()  # as `fit` does
        self.mechanism = HintContext(protocol="compact")
        self.policy = TinyPolicy(num_layers=2, window=512)
        tokenizer = self.policy.tokenizer(
            beside(FixedWork(1), Vocabulary).words() + beside(self.mechanism, Words).words()
        )
        self.chat, self.engine = Chat(tokenizer), Endless(max_dialogues=1024)
        self.engine.bind(self.policy.model(tokenizer).eval(), self.chat.stop_ids)

    def rollout(self, size: dict[str, int], repeat: int) -> list[Group]:
        """On packs of this repeat."""
        world = FixedWork(size["turns"])
        packs = training_packs(world, size["packs"], size["tasks"], repeat * 100)
        sampler = Sampler(engine=self.engine, chat=self.chat, window=self.policy.window, max_new_tokens=4, seed=repeat)
        return run_groups(packs, size["siblings"], Setting(env=world, mechanism=self.mechanism, sampler=sampler))

    def update(self, groups: list[Group]) -> float:
        """Seconds of the second of two."""
        clock = Clock()
        train_on(groups, self.chat, GRPOModule(self.policy, lr=1e-6, reweight=None), clock, 2)
        return clock.seconds


def memory(size: dict[str, int], threads: int) -> dict[str, float]:
    """MiB of both phases in this process, which has done nothing else."""
    step = Step(threads)
    before = fresh_peak()
    groups = step.rollout(size, 0)
    rollout = peak() - before
    fresh_peak()
    step.update(groups)
    return {"rollout_mib": rollout, "training_mib": peak() - before}


def grown(kind: str, args: argparse.Namespace) -> Table:
    """Seconds of all sizes in turn, memory of each."""
    step, key = Step(args.threads), GROWS[kind]
    seconds: dict[str, dict[int, list[float]]] = {"rollout_s": defaultdict(list), "training_s": defaultdict(list)}
    for repeat in range(args.repeats + 1):  # the first warms up
        for size in SIZES[kind]:
            begun = time.perf_counter()
            groups = step.rollout(size, repeat)
            seconds["rollout_s"][size[key]].append(time.perf_counter() - begun)
            seconds["training_s"][size[key]].append(step.update(groups))
    rows = []
    for size in SIZES[kind]:
        command = [sys.executable, __file__, "--size", json.dumps(size), "--threads", str(args.threads)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, env=os.environ)
        medians = {name: statistics.median(found[size[key]][1:]) for name, found in seconds.items()}
        per = 1000 * sum(medians.values()) / (size["packs"] * size["siblings"])
        rows.append({key: size[key], **medians, **json.loads(done.stdout.splitlines()[-1]), "ms_a_lifecycle": per})
    about = f"{kind.capitalize()}: {json.dumps(SIZES[kind][0])}, of which {key} grows."
    return Table(name=f"scaling of {kind}", about=about, note=linear(rows, key), rows=rows)


def linear(rows: list[dict[str, Any]], key: str) -> str:
    """The straight line through milliseconds a lifecycle, and memory of the largest beside that of the smallest."""
    x, y = (np.array([row[name] for row in rows], float) for name in (key, "ms_a_lifecycle"))
    slope, start = np.polyfit(x, y, 1)
    off = np.abs(y / (slope * x + start) - 1).max()
    times = {name: rows[-1][f"{name}_mib"] / max(1e-9, rows[0][f"{name}_mib"]) for name in ("rollout", "training")}
    return (
        f"{start:.2f} ms and {slope:.2f} ms for each of {key}; the furthest point is {off:.0%} off. From {rows[0][key]} to "
        f"{rows[-1][key]} ({x[-1] / x[0]:.0f} times) memory grows {times['rollout']:.1f} times in rollout, "
        f"{times['training']:.1f} times in training."
    )


def processes(args: argparse.Namespace) -> Table:
    """`fit --config smoke` on one and two processes, one thread each; seconds of a rollout and of its updates."""
    rows = []
    for count in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "cod_lightning", "fit", "--config", "smoke", "--torch_threads", "1"]
            command += ["--trainer.devices", str(count), "--trainer.max_epochs", "1", "--data.suites", "[]"]
            command += ["--trainer.default_root_dir", folder, *(["--trainer.strategy", "ddp"] if count > 1 else [])]
            subprocess.run(command, check=True, capture_output=True, cwd=ROOT, env=os.environ)
            lines = [line.split(",") for line in (Path(folder) / "metrics.csv").read_text().splitlines()]
        table = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
        found = {
            name: [float(row[f"time/{name}"]) for row in table if row.get(f"time/{name}")][2:]
            for name in ("rollout_s", "train_s")
        }
        rows.append({"processes": count, **{name: spread(values) for name, values in found.items()}})
    return Table(name="processes", about=processes.__doc__ or "", rows=rows)


def commands(args: argparse.Namespace) -> Table:
    """Seconds until a command has answered, and whether it loaded torch."""
    rows = []
    for command in COMMANDS:
        call = [sys.executable, "-X", "importtime", "-m", "cod_lightning", *command.split()]
        found, with_torch = [], False
        for _ in range(args.repeats):
            begun = time.perf_counter()
            done = subprocess.run([call[0], *call[3:]], check=True, capture_output=True, cwd=ROOT, env=os.environ)
            found.append(time.perf_counter() - begun)
        done = subprocess.run(call, check=True, capture_output=True, text=True, cwd=ROOT, env=os.environ)
        with_torch = any(line.endswith("| torch") for line in done.stderr.splitlines())
        rows.append({"command": command, "seconds": spread(found), "loads torch": "yes" if with_torch else "no"})
    return Table(name="start of a command", about=commands.__doc__ or "", rows=rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=(*SIZES, "processes", "commands"))
    parser.add_argument("--size", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.size is not None:
        print(json.dumps(memory(args.size, args.threads)))
        return
    wanted = args.only or (*SIZES, "processes", "commands")
    tables = [grown(kind, args) for kind in SIZES if kind in wanted]
    tables += [one(args) for one in (processes, commands) if one.__name__ in wanted]
    report(*tables)


if __name__ == "__main__":
    main()
