"""Holds a refactoring to its promise: short trainings give the same `metrics.csv`, timing aside, and the same weights.

    git worktree add /tmp/before REVISION
    python tests/soak/same_numbers.py --before /tmp/before --after .

Trains four shipped configs from both checkouts, seed 1, one torch thread, each warm start from an empty cache, and compares every
tensor of the last checkpoint and, column by column, `metrics.csv` without seconds and bytes. Columns that only one side has are
named; they are no difference.
"""

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

TRAININGS: dict[str, list[str]] = {
    "smoke": ["--config", "smoke", "--data.suites", "null"],
    "quickstart": ["--config", "quickstart", "--data.suites", "null"],
    "mixture": ["--config", "experiment/mixture", "--data.suites", "null"],
    "uninformative_levers": ["--config", "examples/studies/uninformative_levers.yaml", "--data.suites", "null"],
}
SHORT = [
    "--seed_everything",
    "1",
    "--trainer.max_epochs",
    "2",
    "--data.rollouts_per_epoch",
    "2",
    "--data.val_packs",
    "64",
]
TIMING = ("seconds", "_s", "per_second", "memory", "mib", "share", "time", "throughput", "tokens_per")
"""A column whose name holds one of these depends on the machine's speed or memory."""


def digests(checkout: Path, name: str, root: Path, cache: Path) -> dict[str, dict[str, str]]:
    """SHA-256 of each column of the training's metrics and of each tensor of its weights; trains it first."""
    run = root / name
    env = os.environ | {"COD_LIGHTNING_CACHE": str(cache), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(checkout)}
    arguments = ["fit", *TRAININGS[name], *SHORT, "--trainer.default_root_dir", str(run)]
    done = subprocess.run(
        [sys.executable, "-m", "cod_lightning", *arguments], cwd=checkout, env=env, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{checkout}: {name} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    state = torch.load(run / "checkpoints" / "last.ckpt", map_location="cpu", weights_only=False)["state_dict"]
    weights = {
        key: hashlib.sha256(repr(tensor.shape).encode() + tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        for key, tensor in state.items()
    }
    with (run / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    metrics = {
        column: hashlib.sha256(repr([row[column] for row in rows]).encode())
        for column in rows[0]
        if not any(part in column for part in TIMING)
    }
    return {
        what: {key: found.hexdigest() for key, found in digest.items()}
        for what, digest in (("metrics", metrics), ("weights", weights))
    }


def main() -> None:
    """Train, compare, print a line each; exit code 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="a checkout, or a JSON file that --out wrote")
    parser.add_argument("--after", type=Path, default=Path(), help="a checkout")
    parser.add_argument("--only", nargs="*", default=list(TRAININGS), choices=list(TRAININGS))
    parser.add_argument("--out", type=Path, help="where the digests of --after go, as JSON")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="same_numbers_"))
    before = {}
    if options.before.is_file():
        before = json.loads(options.before.read_text())
    after: dict[str, dict[str, dict[str, str]]] = {}
    different = False
    for name in options.only:
        if not options.before.is_file():
            before[name] = digests(options.before.resolve(), name, root / "before", root / "before_cache")
        after[name] = digests(options.after.resolve(), name, root / "after", root / "after_cache")
        for what in ("metrics", "weights"):
            one, other = before[name][what], after[name][what]
            changed = sorted(key for key in one.keys() & other.keys() if one[key] != other[key])
            if what == "weights":
                changed += sorted(one.keys() ^ other.keys())
            different |= bool(changed)
            print(f"{name} {what}: {'DIFFERENT: ' + ', '.join(changed) if changed else 'the same'}", flush=True)
            if what == "metrics":
                for side, only in (("before", one.keys() - other.keys()), ("after", other.keys() - one.keys())):
                    print(f"  {len(only)} columns only {side}: {', '.join(sorted(only))}")
    print(f"runs: {root}")
    if options.out is not None:
        options.out.write_text(json.dumps(after, indent=1))
    sys.exit(int(different))


if __name__ == "__main__":
    main()
