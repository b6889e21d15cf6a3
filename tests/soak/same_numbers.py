"""Holds a refactoring to its promise: short trainings give the same `metrics.csv`, timing aside, and the same weights.

    git worktree add /tmp/before REVISION
    python tests/soak/same_numbers.py --before /tmp/before --after .

Trains four shipped configs from both checkouts, seed 1, one torch thread, each warm start from an empty cache, and compares the
rows of `metrics.csv` without columns of seconds or bytes, and every tensor of the last checkpoint.
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
    "uninformative_levers": ["--config", "experiment/uninformative_levers", "--data.suites", "null"],
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


def digests(checkout: Path, name: str, root: Path, cache: Path) -> dict[str, str]:
    """SHA-256 of the training's metrics and weights; trains it first."""
    run = root / name
    env = os.environ | {"COD_LIGHTNING_CACHE": str(cache), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(checkout)}
    arguments = ["fit", *TRAININGS[name], *SHORT, "--trainer.default_root_dir", str(run)]
    done = subprocess.run(
        [sys.executable, "-m", "cod_lightning", *arguments], cwd=checkout, env=env, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{checkout}: {name} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    weights = hashlib.sha256()
    state = torch.load(run / "checkpoints" / "last.ckpt", map_location="cpu", weights_only=False)["state_dict"]
    for key, tensor in sorted(state.items()):
        weights.update(key.encode() + tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return {"metrics": metrics_digest(run / "metrics.csv"), "weights": weights.hexdigest()}


def metrics_digest(path: Path) -> str:
    """Of the rows, column by column in alphabetical order, without those of time."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    kept = sorted(name for name in rows[0] if not any(part in name for part in TIMING))
    path.with_suffix(".compared.json").write_text(json.dumps([{k: row[k] for k in kept} for row in rows], indent=1))
    return hashlib.sha256(repr([[row[name] for name in kept] for row in rows]).encode()).hexdigest()


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
    after: dict[str, dict[str, str]] = {}
    different = False
    for name in options.only:
        if not options.before.is_file():
            before[name] = digests(options.before.resolve(), name, root / "before", root / "before_cache")
        after[name] = digests(options.after.resolve(), name, root / "after", root / "after_cache")
        for what in ("metrics", "weights"):
            same = before[name][what] == after[name][what]
            different |= not same
            print(f"{name} {what}: {'the same' if same else f'DIFFERENT, see {root}'}", flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(after, indent=1))
    sys.exit(int(different))


if __name__ == "__main__":
    main()
