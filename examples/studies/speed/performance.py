"""All benchmarks of speed one after the other, and docs/results/performance.json of what they say.

    PYTHONPATH=. python examples/studies/speed/performance.py [--only NAME ...] [--trl PYTHON] [--vllm PYTHON] [--out FILE]

Nothing else should run on the machine meanwhile. A benchmark that fails is named there, and the others are there anyway. With
--only the file keeps the tables of those that are not run again.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from examples.studies.speed.results import Table, tables_of, write

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BENCHMARKS = (
    "bench_end_to_end",
    "bench_rollout_roof",
    "bench_turns",
    "bench_training_roof",
    "bench_engines",
    "bench_logprobs",
)
VARIANTS = {
    "bench_end_to_end": ([], ["--long", "--turns", "8", "24", "--repeats", "3"]),
    "bench_training_roof": ([], ["--long", "--repeats", "5"]),
}
"""Arguments of each run of one that has several."""


def run(name: str, python: Path, arguments: list[str]) -> list[Table]:
    """What it says; where it says nothing, a table without rows that says why."""
    begun = time.perf_counter()
    print(f"{name}: begins", file=sys.stderr, flush=True)
    command = [str(python), str(HERE / f"{name}.py"), *arguments]
    environment, output, failure = {**os.environ, "PYTHONPATH": "."}, "", ""
    try:
        output = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        failure = f"Did not run: {error}."
    print(f"{name}: {failure or f'{time.perf_counter() - begun:.0f} s'}", file=sys.stderr, flush=True)
    shown = f"`PYTHONPATH=. python examples/studies/speed/{' '.join([f'{name}.py', *arguments])}`"
    if failure:
        return [Table(name=name.removeprefix("bench_"), about=shown, note=failure)]
    tables = [Table(**table) for table in tables_of(output).values()]
    return [Table(name=t.name, about=f"{t.about}\n\n{shown}", note=t.note, rows=t.rows) for t in tables]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS))
    parser.add_argument("--trl", type=Path, help="Python of an environment with TRL (make_trl_venv.sh)")
    parser.add_argument("--vllm", type=Path, help="Python of an environment with vLLM (tests/vllm/make_venv.sh)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "results" / "performance.json")
    args = parser.parse_args()
    again = set(args.only) < set(BENCHMARKS) and args.out.exists()
    tables = {t["name"]: Table(**t) for t in json.loads(args.out.read_text())["tables"]} if again else {}
    for name in args.only:
        vllm = args.vllm if name == "bench_engines" else None
        trl = ["--trl", str(args.trl)] if args.trl and name == "bench_end_to_end" else []
        for more in VARIANTS.get(name, ([],)):
            tables |= {table.name: table for table in run(name, vllm or Path(sys.executable), [*more, *trl])}
        write(args.out, "make bench", *tables.values())


if __name__ == "__main__":
    main()
