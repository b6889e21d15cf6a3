"""Trains on two network namespaces of this machine, kills one, and lets the run go on; part of `make soak`.

    PYTHONPATH=. python tests/soak/two_nodes.py [--out docs/results/two_nodes.json]

Every node is a namespace with an address of its own on one bridge. The job is the one that `launch` renders for Slurm, run by
stand-ins of sbatch and srun that put each task into its node. For DDP and FSDP2: a run that nobody disturbs; the same with the
second node killed after three updates, then the same job again; the same, then going on with one node and then with two ranks on
it. Needs the right to make namespaces. Exits with 1 where a process is left, a job hangs, or weights differ.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.checkpoints.folder import CheckpointFolder, num_updates_of
from tests import fake_slurm, namespaces

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 600.0
UPDATES = 8
SMALL = [
    *("--warm_start", "null", "--torch_threads", "1", "--data.suites", "null", "--checkpoint_every", "1"),
    *("--data.rollouts_per_epoch", "2", "--data.updates_per_rollout", "2", "--data.packs_per_rollout", "4"),
    *("--data.group_size", "4", "--data.val_packs", "8", "--trainer.max_epochs", "2", "--gpus", "0"),
]


class Cluster:
    """Nodes, and a folder for what runs on them."""

    def __init__(self, nodes: Mapping[str, str], folder: Path, python: str) -> None:
        self.nodes, self.folder, self.python = nodes, folder, python
        self.names = list(nodes.values())
        (folder / "setup.sh").write_text("export GLOO_SOCKET_IFNAME=eth0\n")
        self.environment = os.environ | fake_slurm.install(folder / "slurm", nodes)
        self.environment |= {"PYTHONPATH": str(ROOT), "COD_LIGHTNING_CACHE": str(folder / "cache")}

    def launch(self, root: Path, *more: str) -> "Job":
        """The job, submitted by the command."""
        line = [self.python, "-m", "cod_lightning", "launch", *more, *SMALL, "--setup", str(self.folder / "setup.sh")]
        line += ["--python", self.python, "--trainer.default_root_dir", str(root)]
        done = subprocess.run(line, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return Job(self, root)

    def again(self, root: Path) -> "Job":
        """The same job once more, as Slurm queues it again after it has lost a node."""
        launch = root / "launch"
        subprocess.run(
            ["sbatch", "--parsable", "job.sh"], cwd=launch, env=self.environment, check=True, capture_output=True
        )
        return Job(self, root)


class Job:
    """A job that runs."""

    def __init__(self, cluster: Cluster, root: Path) -> None:
        self.cluster, self.root = cluster, root
        self.pid, self.began = int((cluster.folder / "slurm" / "pid").read_text()), time.monotonic()

    def running(self) -> bool:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def until(self, updates: int) -> None:
        """Until there is a checkpoint of so many updates."""
        kept = CheckpointFolder(self.root / "checkpoints")
        while not any(num_updates_of(path) >= updates for path in kept.kept()):
            assert self.running(), self.said()
            assert time.monotonic() - self.began < LIMIT_S, self.said()
            time.sleep(0.02)

    def end(self) -> float:
        """Seconds until it is over and no process is left on any node."""
        since = time.monotonic()
        while self.running() or any(namespaces.pids(name) for name in self.cluster.names):
            assert time.monotonic() - since < LIMIT_S, f"it hangs: {self.said()}"
            time.sleep(0.1)
        return round(time.monotonic() - since, 1)

    def said(self) -> str:
        logs = (*self.root.glob("launch/*.log"), *self.root.glob("launch/*.out"))
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-1500:]}" for log in logs)


def weights(root: Path) -> dict[str, torch.Tensor]:
    checkpoint = read_checkpoint(root / "checkpoints" / "last.ckpt")
    return checkpoint.weights()


def difference(one: Path, other: Path) -> float:
    """Largest, of any weight."""
    ours, theirs = weights(one), weights(other)
    return max(float((ours[name] - theirs[name]).abs().max()) for name in theirs)


def num_updates(root: Path) -> int:
    return read_checkpoint(root / "checkpoints" / "last.ckpt").global_step


def of_strategy(cluster: Cluster, strategy: str) -> dict[str, Any]:
    """What happened to three runs with that strategy."""
    config = ("--config", "smoke", f"strategy={strategy}")
    whole, killed, fewer = (cluster.folder / f"{strategy}-{name}" for name in ("whole", "killed", "fewer"))
    whole_s = cluster.launch(whole, *config, "--nodes", "2").end()
    assert num_updates(whole) == UPDATES, "the undisturbed run did not end"
    found: dict[str, Any] = {"strategy": strategy, "whole_s": whole_s, "updates": UPDATES}

    job = cluster.launch(killed, *config, "--nodes", "2")
    job.until(3)
    namespaces.kill(cluster.names[1])
    found["ends_after_loss_of_a_node_s"] = job.end()
    found["updates_at_loss"] = num_updates(killed)
    assert num_updates(killed) < UPDATES, "the node was killed too late"
    cluster.again(killed).end()
    assert num_updates(killed) == UPDATES
    found["difference_after_going_on_with_two_nodes"] = difference(killed, whole)
    assert found["difference_after_going_on_with_two_nodes"] == 0.0

    job = cluster.launch(fewer, *config, "--nodes", "2")
    job.until(3)
    namespaces.kill(cluster.names[1])
    job.end()
    alone = cluster.launch(fewer, *config, "--nodes", "1", "--accept_changes", "true")
    alone.until(5)
    os.kill(alone.pid, signal.SIGUSR1)  # as Slurm does before the time is up
    found["stops_after_signal_s"] = alone.end()
    found["updates_at_signal"] = num_updates(fewer)
    more = ("--nodes", "1", "--trainer.devices", "2", "--accept_changes", "true")
    cluster.launch(fewer, *config, *more).end()
    assert num_updates(fewer) == UPDATES
    found["difference_after_two_nodes_one_node_two_ranks"] = difference(fewer, whole)
    assert found["difference_after_two_nodes_one_node_two_ranks"] < 1e-3
    return found


def main() -> None:
    """All of it, in one temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", default=["ddp", "fsdp2"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if reason := namespaces.unavailable():
        sys.exit(f"no network namespaces here: {reason}")
    record: dict[str, Any] = {"runs": []}
    with tempfile.TemporaryDirectory() as folder, namespaces.nodes(2) as nodes:
        cluster = Cluster(nodes, Path(folder), sys.executable)
        record["addresses"] = list(nodes)
        for strategy in options.strategies:
            record["runs"].append(of_strategy(cluster, strategy))
            print(json.dumps(record["runs"][-1]), file=sys.stderr, flush=True)
    print(json.dumps(record))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
