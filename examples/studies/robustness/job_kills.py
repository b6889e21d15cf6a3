"""Kills jobs of Slurm and `sweep`s at random moments, lets them go on, and compares what comes out; part of `make soak`.

    PYTHONPATH=. python examples/studies/robustness/job_kills.py [--kills 100] [--commands launch sweep]
        [--out docs/results/job_kills.json]

A job is `examples/slurm.sh` under a stand-in of Slurm, on one node and with a checkpoint after each of its 8 updates. SIGKILL goes
to the batch script, the step, torchrun's agent or the rank, or to all at once; then the same job is queued again. A `sweep` of two
cells is killed alone, or with its job; then it is typed again. Exits with 1 where a process is left or hangs, where a job ends with
an error that no kill explains, or where weights are not those of a run without kills. Kills that `--out` has count, so that it
goes on where it was stopped.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from cod_lightning.checkpoints.checkpoint import read_checkpoint
from tests import fake_slurm
from tests.forked_fit import NUM_UPDATES, SMALL

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 300.0
MARK = "COD_LIGHTNING_KILLED"
"""Environment variable by which the processes of a command are found."""
_SUITE = "{name: held_out, num_packs: 8, controls: [], warm_start_temperatures: []}"
JOB = ["sbatch", "--parsable", "--nodes=1", "--gpus-per-node=0", str(ROOT / "examples" / "slurm.sh")]
"""The beginning of the line that submits one."""
CELLS = [
    *(
        "warm_start=null",
        "data.packs_per_rollout=4",
        "data.group_size=4",
        "data.updates_per_rollout=2",
        "data.val_packs=8",
    ),
    *(
        "data.rollouts_per_epoch=2",
        "trainer.max_epochs=2",
        "checkpoint_every=1",
        f"data.suites=[{_SUITE}]",
        "model.lr=2e-3,1e-3",
    ),
]


def marked(mark: str) -> list[int]:
    """Processes with this mark in their environment, the oldest first."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return sorted(found)


def until_gone(mark: str) -> None:
    """Wait until none of them is left. Raises `AssertionError` for those that stay."""
    end = time.monotonic() + LIMIT_S
    while left := marked(mark):
        assert time.monotonic() < end, f"left: {left}"
        time.sleep(0.05)


def kill_some(mark: str, rng: random.Random) -> bool:
    """SIGKILL to one of them or to all; whether there were any."""
    found = marked(mark)
    for pid in found if rng.random() < 0.3 else rng.sample(found, min(1, len(found))):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    checkpoint = read_checkpoint(folder / "checkpoints" / "last.ckpt")
    assert checkpoint.global_step == NUM_UPDATES, f"{folder} has {checkpoint.global_step} updates"
    return checkpoint.weights()


def differ(folder: Path, whole: Path) -> bool:
    ours, theirs = weights(folder), weights(whole)
    return any(not torch.equal(ours[name], theirs[name]) for name in theirs)


def cells_that_differ(root: Path, whole: Path) -> int:
    """Of the two of a sweep, how many have other weights than those of the second folder."""
    cells = sorted(path.parent.parent.relative_to(whole) for path in whole.rglob("last.ckpt"))
    assert len(cells) == 2, f"{len(cells)} cells"
    return sum(differ(root / cell, whole / cell) for cell in cells)


class Launched:
    """Jobs of `examples/slurm.sh` in one folder."""

    share = 0.5
    """Of the time that it takes without kills: within it, it is killed. What goes on is over sooner than what begins."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.mark = folder, str(folder / "launch")
        self.environment = (
            os.environ
            | fake_slurm.install(folder / "slurm", {"127.0.0.1": ""})
            | {MARK: self.mark, "PYTHON": sys.executable}
        )
        self.environment |= {"PYTHONPATH": str(ROOT), "COD_LIGHTNING_CACHE": str(folder / "cache")}

    def submit(self, root: Path) -> None:
        """The job, for the first time or as Slurm queues it again after that."""
        line = [*JOB, str(root), *SMALL[1:], "--checkpoint_every", "1"]
        done = subprocess.run(line, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]

    def ended(self, root: Path) -> bool:
        """Whether the run is over; `AssertionError` for an error that is no kill's."""
        until_gone(self.mark)
        with suppress(Exception):
            return (
                read_checkpoint(root / "checkpoints" / "last.ckpt").global_step == NUM_UPDATES
                and (root / "report.html").is_file()
            )
        return False

    def differing(self, root: Path, whole: Path) -> int:
        return int(differ(root, whole))


class Swept:
    """Sweeps of two cells in one folder."""

    share = 0.25

    def __init__(self, folder: Path) -> None:
        self.mark = str(folder / "sweep")
        self.environment = os.environ | {MARK: self.mark, "PYTHONPATH": str(ROOT)}
        self.environment |= {"COD_LIGHTNING_CACHE": str(folder / "cache")}
        self.code: dict[Path, subprocess.Popen[bytes]] = {}

    def submit(self, root: Path) -> None:
        log = root.with_name(f"{root.name}.log").open("ab")
        line = [sys.executable, "-m", "cod_lightning", "sweep", "--config", "smoke", "--out", str(root), *CELLS]
        self.code[root] = subprocess.Popen(line, env=self.environment, stdout=log, stderr=log, start_new_session=True)

    def ended(self, root: Path) -> bool:
        code = self.code[root].wait()
        until_gone(self.mark)  # a job whose sweep was killed ends by itself
        said = root.with_name(f"{root.name}.log").read_text(errors="replace")
        assert code in (0, 1, -signal.SIGKILL), said[-2000:]
        return code == 0

    def differing(self, root: Path, whole: Path) -> int:
        return cells_that_differ(root, whole)


def soak(
    what: Launched | Swept, folder: Path, num_kills: int, found: dict[str, int], note: Callable[[Any], None]
) -> None:
    """Kills until there were so many, with those that have been `found`; what is killed goes on until it ends."""
    rng, whole = random.Random(1 + found["kills"]), folder / "whole"
    what.submit(whole)
    begun = time.monotonic()
    assert what.ended(whole), "the run without kills did not end"
    seconds = time.monotonic() - begun
    found["whole_s"] = round(seconds)
    while found["kills"] < num_kills:
        root, kills, again = folder / f"run{found['runs']}", 0, 0
        while True:
            what.submit(root)
            most_s = what.share * seconds * (1 + again / 4)  # a machine that is slower by now gets on, too
            time.sleep(rng.uniform(0, most_s) if found["kills"] + kills < num_kills else 0.0)
            kills += found["kills"] + kills < num_kills and kill_some(what.mark, rng)
            if what.ended(root):
                break
            again += 1
        differing = what.differing(root, whole)
        assert not differing, f"the weights differ from those of {whole}"
        found |= {
            "runs": found["runs"] + 1,
            "kills": found["kills"] + kills,
            "begun_again": found["begun_again"] + again,
        }
        note(dict(found))


def main(argv: Sequence[str] | None = None) -> None:
    """All kills, each command in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--commands", nargs="+", choices=["launch", "sweep"], default=["launch", "sweep"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    record: dict[str, Any] = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}

    for command in options.commands:

        def note(found: Any, command: str = command) -> None:
            record[command] = found
            print(json.dumps({command: found}), file=sys.stderr, flush=True)
            if options.out:
                options.out.write_text(json.dumps(record, indent=1) + "\n")

        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            folder = Path(name)
            what = {"launch": Launched, "sweep": Swept}[command](folder)
            found = dict.fromkeys(("runs", "kills", "begun_again", "left", "runs_that_differ"), 0)
            try:
                soak(what, folder, options.kills, found | record.get(command, {}), note)
            finally:
                while left := marked(what.mark):
                    for pid in left:
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
