"""What each change for speed gives: whole training steps with it and without it, equal work, steps in turn.

    PYTHONPATH=. python tests/benchmarks/bench_changes.py [--turns 6] [--repeats 15] [--threads 2]

The step is that of bench_end_to_end.py: 256 episodes, 4 tokens a turn, one update. Each row undoes one change (the last one all)
in a process of its own; figures are how many times as long the step, its rollout and its update then take, within a repeat.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.bench_end_to_end import ours, prepare
from tests.benchmarks.changes import EVERYTHING, UNDO
from tests.benchmarks.fixed_work import scale_of
from tests.benchmarks.results import Table, report, spread
from tests.benchmarks.workers import Worker, in_turn

PARTS = {"step": "seconds", "rollout": "generation_s", "update": "training_s"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=[*UNDO, EVERYTHING], default=[*UNDO, EVERYTHING])
    args = parser.parse_args()
    names = ["", *args.only]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, scale_of(args.turns, long=False))
        command = ours(folder, args.turns, args.threads)
        logs = {one: folder / f"{i}.log" for i, one in enumerate(names)}
        workers = {n: Worker.start([*command, *(["--without", n] if n else [])], logs[n]) for n in names}
        steps = in_turn(workers, args.repeats)
        for one, worker in workers.items():
            if worker.failure:
                sys.exit(f"{one}: {worker.failure}: {logs[one].read_text()[-2000:]}")
    rows = [{"without": name, **_times(steps[name], steps[""])} for name in names[1:]]
    report(Table(name="what each change gives", about=__doc__.splitlines()[0], rows=rows))


def _times(without: list[dict[str, float]], whole: list[dict[str, float]]) -> dict[str, dict[str, float]]:
    pairs = list(zip(without, whole, strict=True))
    return {name: spread([a[key] / b[key] for a, b in pairs]) for name, key in PARTS.items()}


if __name__ == "__main__":
    main()
