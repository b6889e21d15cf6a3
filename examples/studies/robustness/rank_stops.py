"""Stops short trainings on two ranks by SIGTERM at random moments and lets them go on; part of `make soak`.

    PYTHONPATH=. python examples/studies/robustness/rank_stops.py [--stops 20] [--out docs/results/rank_stops.json]

DDP and FSDP2 in turn. The signal goes to one rank or to both, at any moment between the first line of the log and the end of
the run. Exits with 1 where a rank is not gone after 30 s, where ranks end with different codes, where no checkpoint is left
though an update was done, or where the weights are not those of the run that nobody stopped.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import torch

from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.checkpoints.folder import CheckpointFolder
from cod_lightning.cli import main as command_line
from tests.command_line import by_strategy
from tests.forked import Ranks

LIMIT_S = 30.0
STRATEGIES = ("ddp", "fsdp2")
SMALL = [
    *("fit", "--config", "smoke", "--warm_start", "null", "--torch_threads", "1", "--data.suites", "null"),
    *("--data.rollouts_per_epoch", "2", "--data.updates_per_rollout", "2", "--data.packs_per_rollout", "4"),
    *("--data.group_size", "4", "--data.val_packs", "8", "--trainer.max_epochs", "2", "--trainer.devices", "2"),
]


def part(folder: Path, strategy: str) -> int:
    """One rank's run; its exit code."""
    log = os.open(folder.with_name(f"{folder.name}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout, sys.stderr = (os.fdopen(handle, "w", buffering=1) for handle in (1, 2))
    options = ("--trainer.default_root_dir", str(folder), "--ckpt_path", "auto")
    return command_line([*SMALL, *options, *by_strategy(strategy)])


def begun(folder: Path, strategy: str, name: str) -> Ranks:
    """The run on two ranks, once it has said something: its signals are listened to from then on."""
    ranks = Ranks(2, partial(part, folder, strategy), folder.with_name(f"{folder.name}.{name}"))
    log, before = folder.with_name(f"{folder.name}.log"), 0
    before = log.stat().st_size if log.exists() else 0
    while not (log.exists() and log.stat().st_size > before):
        assert not ranks.ended(), f"the run ended at once: {log.read_text()[-2000:] if log.exists() else ''}"
        time.sleep(0.01)
    return ranks


def whole_run(folder: Path, strategy: str) -> float:
    """Seconds of a run that nobody stops, from its first line on."""
    ranks = begun(folder, strategy, "whole")
    since = time.monotonic()
    assert set(ranks.results(300.0)) == {0}
    return time.monotonic() - since


def stopped_run(folder: Path, strategy: str, seconds: float, rng: random.Random, num_stops: int) -> list[float]:
    """Stops until the run ends, `num_stops` at most; how long each took. AssertionError where anything hung or was lost."""
    kept, took = CheckpointFolder(folder / "checkpoints"), []
    while True:
        ranks = begun(folder, strategy, f"part{len(took)}")
        time.sleep(rng.uniform(0, seconds))
        if len(took) == num_stops or ranks.ended():
            codes = set(ranks.results(300.0))
            assert codes == {0}, f"ended with {codes}"
            return took
        ranks.signal(signal.SIGTERM, rng.choice(((0,), (1,), (0, 1))))
        since = time.monotonic()
        codes = set(ranks.results(LIMIT_S))
        took.append(time.monotonic() - since)
        assert codes in ({143}, {0}), f"ranks ended with {codes}"
        had = (folder / "metrics.csv").is_file() and (folder / "metrics.csv").read_text().count("\n") > 1
        assert kept.usable()[0] is not None or not had, f"no usable checkpoint in {kept.path}"
        if codes == {0}:
            return took


def the_same(folder: Path, whole: Path) -> bool:
    """Whether both runs ended with the same weights."""
    ours, theirs = (read_checkpoint(f / "checkpoints" / "last.ckpt").weights() for f in (folder, whole))
    return all(torch.equal(ours[name], theirs[name]) for name in theirs)


def soak(folder: Path, num_stops: int, seed: int = 1) -> dict[str, float]:
    """Runs until there have been that many stops."""
    rng = random.Random(seed)
    seconds = {strategy: whole_run(folder / strategy, strategy) for strategy in STRATEGIES[:num_stops]}
    found: dict[str, float] = {"runs": 0, "stops": 0, "slowest_stop_s": 0.0, "checkpoints_lost": 0, "hung": 0}
    while found["stops"] < num_stops:
        strategy = STRATEGIES[int(found["runs"]) % len(seconds)]
        share = 1 if num_stops <= len(STRATEGIES) else num_stops - int(found["stops"])
        took = stopped_run(folder / f"run{found['runs']}", strategy, seconds[strategy], rng, share)
        assert the_same(folder / f"run{found['runs']}", folder / strategy), "the weights differ"
        found |= {"runs": found["runs"] + 1, "stops": found["stops"] + len(took)}
        found["slowest_stop_s"] = round(max(found["slowest_stop_s"], *took, 0.0), 1)
        print(json.dumps(found), file=sys.stderr, flush=True)
    return found


def main() -> None:
    """All stops, in one temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stops", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        record = soak(Path(folder), options.stops)
    print(json.dumps(record))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
