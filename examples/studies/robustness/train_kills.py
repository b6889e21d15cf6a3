"""Kills short trainings at random moments, lets them go on, and compares what comes out; part of `make soak`.

    PYTHONPATH=. python examples/studies/robustness/train_kills.py [--kills 100] [--seed 1] [--out docs/results/train_kills.json]

A run checkpoints after each of its 8 updates. It is killed again and again, at any moment from its first line to its last, each
time to go on with `--ckpt_path auto`, until it ends; then the next run begins. Exits with 1 where a restart finds no usable
checkpoint though there had been one, or where parameters, moments or metrics are not those of the run that nobody killed.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from cod_lightning.checkpoints.folder import CheckpointFolder
from tests.forked_fit import EVERY, assert_the_same, fit, said, start


def whole_run(folder: Path) -> float:
    """Seconds of a run that nobody kills."""
    begun = time.monotonic()
    assert fit(folder, *EVERY) == 0, said(folder)
    return time.monotonic() - begun


def killed_run(folder: Path, seconds: float, rng: random.Random, num_kills: int) -> tuple[int, int]:
    """Kills until the run ends, `num_kills` at most, and restarts from a checkpoint; AssertionError where anything was lost."""
    kept, resumed = CheckpointFolder(folder / "checkpoints"), 0
    for kills in range(num_kills + 1):
        had = kept.usable()[0] is not None
        assert had or not kept.kept(), f"no usable checkpoint in {kept.path}"
        resumed += had and kills > 0
        child = start(folder, *EVERY, "--ckpt_path", "auto")
        status = killed(child, rng.uniform(0, seconds)) if kills < num_kills else os.waitpid(child, 0)[1]
        if status == 0:
            return kills, resumed
        assert os.WIFSIGNALED(status), said(folder)
    raise AssertionError(said(folder))


def killed(child: int, after_s: float) -> int:
    """How the child ended: by SIGKILL after so many seconds, or by itself before."""
    end = time.monotonic() + after_s
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def soak(folder: Path, num_kills: int, seed: int = 1) -> dict[str, int]:
    """Runs until there have been that many kills."""
    rng, whole, found = random.Random(seed), folder / "whole", {"runs": 0, "kills": 0, "resumed": 0, "begun_anew": 0}
    seconds = whole_run(whole)
    while found["kills"] < num_kills:
        run = folder / f"run{found['runs']}"
        kills, resumed = killed_run(run, seconds, rng, num_kills - found["kills"])
        assert_the_same(run, whole)
        found = {
            "runs": found["runs"] + 1,
            "kills": found["kills"] + kills,
            "resumed": found["resumed"] + resumed,
            "begun_anew": found["begun_anew"] + kills - resumed,
        }
        print(json.dumps(found), file=sys.stderr, flush=True)
    return found


def main() -> None:
    """All kills, in one temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = {**soak(Path(folder), options.kills, options.seed), "checkpoints_lost": 0, "runs_that_differ": 0}
    print(json.dumps(record))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
