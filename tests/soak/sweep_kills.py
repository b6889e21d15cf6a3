"""Kills sweeps at random moments, starts them again, and compares what comes out; part of `make soak`.

    PYTHONPATH=. python tests/soak/sweep_kills.py [--kills 100] [--out docs/results/sweep_kills.json]

A sweep of two short trainings is killed again and again, its job left behind or killed with it, until it ends; then the
next one begins. Exits with 1 where a job is lost, or has other parameters, moments or metrics than in a sweep that nobody killed.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.forked_fit import assert_the_same

SMALL = """
defaults:
  - /smoke
  - _self_
warm_start: null
checkpoint_every: 1
torch_threads: 1
data:
  rollouts_per_epoch: 2
  updates_per_rollout: 2
  packs_per_rollout: 4
  group_size: 4
  val_packs: 8
  suites: [{name: held_out, num_packs: 8, controls: [], warm_start_temperatures: []}]
trainer: {max_epochs: 2}
hydra:
  sweeper: {params: {seed_everything: '1,2'}}
"""


def sweep(config: Path, out: Path) -> subprocess.Popen[bytes]:
    """One that has started, the leader of a group that its jobs belong to; its output goes to `OUT.log`."""
    with out.with_name(f"{out.name}.log").open("ab") as log:
        line = [sys.executable, "-m", "cod_lightning", "sweep", "--config", str(config), "--out", str(out)]
        return subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True)


def ended(process: subprocess.Popen[bytes], after_s: float, *, whole_group: bool) -> int | None:
    """Its exit code, or None where it was killed after so many seconds."""
    try:
        return process.wait(after_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL) if whole_group else process.kill()
        process.wait()
        return None


def free(group: int, out: Path) -> int:
    """Start a sweep while the job of a killed one runs: it is refused in one line; then end that job. How often it was refused."""
    running = [file for file in out.glob("*/job.json") if alive(json.loads(file.read_text()).get("pid"), file.parent)]
    refused = 0
    if running:
        said = subprocess.run(
            [
                sys.executable,
                "-m",
                "cod_lightning",
                "sweep",
                "--config",
                str(out.parent / "small.yaml"),
                "--out",
                str(out),
            ],
            capture_output=True,
            text=True,
        )
        assert said.returncode == 2, said.stderr
        assert "a folder that no other process uses" in said.stderr, said.stderr
        refused = 1
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    while any(alive(json.loads(file.read_text()).get("pid"), file.parent) for file in running):
        time.sleep(0.01)
    return refused


def alive(process: int | None, folder: Path) -> bool:
    try:
        return str(folder) in Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False


def soak(folder: Path, num_kills: int, most_s: float) -> dict[str, int]:
    """Sweeps until there have been that many kills, or the time is over."""
    config, whole, rng = folder / "small.yaml", folder / "whole", random.Random(1)
    config.write_text(SMALL)
    begun = time.monotonic()
    assert ended(sweep(config, whole), 600, whole_group=True) == 0, (folder / "whole.log").read_text()
    seconds = time.monotonic() - begun
    found = {"sweeps": 0, "kills": 0, "refused_while_a_job_was_left": 0}
    while found["kills"] < num_kills and time.monotonic() - begun < most_s:
        out = folder / f"sweep{found['sweeps']}"
        while True:
            last = found["kills"] >= num_kills or time.monotonic() - begun > most_s
            whole_group = rng.random() < 0.5
            process = sweep(config, out)
            code = ended(process, 600 if last else rng.uniform(0, 1.2 * seconds), whole_group=whole_group)
            if code is not None:
                assert code == 0, out.with_name(f"{out.name}.log").read_text()
                break
            found["kills"] += 1
            found["refused_while_a_job_was_left"] += free(process.pid, out)
        for job in sorted(path.parent for path in whole.glob("*/job.json")):
            assert_the_same(out / job.name, job)
        found["sweeps"] += 1
        print(json.dumps(found), file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--most_s", type=float, default=3600.0, help="Begin no kill after so many seconds.")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = {**soak(Path(folder), options.kills, options.most_s), "jobs_lost": 0, "jobs_that_differ": 0}
    print(json.dumps(record))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
