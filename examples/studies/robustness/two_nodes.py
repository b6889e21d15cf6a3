"""Trains on two network namespaces of this machine, kills one, and lets the run go on; part of `make soak`.

    PYTHONPATH=. python examples/studies/robustness/two_nodes.py [--vllm .venv-vllm/bin/python] [--out docs/results/two_nodes.json]

Every node is a namespace with an address of its own on one bridge. The job is `examples/slurm.sh`, run by
stand-ins of sbatch and srun that put each task into its node. For DDP and FSDP2: an undisturbed run; the same with the
second node killed after three updates, then the same job again; the same, then going on with one node and then with two ranks on
it. Then the two sample from a server on a third, a stand-in whose tokens come from seeds alone: an undisturbed run; one
whose server dies, whose third node is cut off for a while and then killed, and which goes on by the same job again, or on one
node that trains and one that serves. With `--vllm` (a Python that has it) the server is vLLM's, in an undisturbed run and
one whose third node is killed. Needs the right to make namespaces. Exits with 1 where a process is left, a job hangs, or weights
differ. `--parts` does some of it; what else `--out` has stays.
"""

import argparse
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from cod_lightning.checkpoints.checkpoint import read_checkpoint
from cod_lightning.checkpoints.folder import CheckpointFolder, num_updates_of
from tests import fake_slurm, namespaces, stand_in_vllm
from tests.command_line import by_strategy

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 600.0
UPDATES = 8
SMALL = [
    *("--warm_start", "null", "--torch_threads", "1", "--data.suites", "null", "--checkpoint_every", "1"),
    *("--data.rollouts_per_epoch", "2", "--data.updates_per_rollout", "2", "--data.packs_per_rollout", "4"),
    *("--data.group_size", "4", "--data.val_packs", "8", "--trainer.max_epochs", "2"),
]
SERVED = ("--config", "smoke", "engine=VLLMServerEngine", "--data.engine.local.kv_cache_gb", "0.25")
BLIND = json.dumps(
    [
        {"class_path": "cod_lightning.callbacks.WeightSync", "init_args": {"self_test": None}},
        {"class_path": "cod_lightning.callbacks.MismatchGuard", "init_args": {"stop_at": 1e9}},
    ]
)
"""Callbacks that take any log-probs, for those of the stand-in."""
SERVER = "cod_lightning.engines.vllm_server.main"
CUT_OFF_S = 5.0


class Cluster:
    """Nodes, and a folder for what runs on them."""

    def __init__(self, nodes: Mapping[str, str], folder: Path, python: str, path: Sequence[Path] = ()) -> None:
        folder.mkdir(exist_ok=True)
        self.nodes, self.folder, self.python = nodes, folder, python
        self.names = list(nodes.values())
        self.environment = os.environ | fake_slurm.install(folder / "slurm", nodes)
        self.environment |= {
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *path))),
            "COD_LIGHTNING_CACHE": str(folder / "cache"),
            "GLOO_SOCKET_IFNAME": "eth0",
            "PYTHON": python,
        }
        self.num_jobs = 0

    def launch(self, root: Path, *more: str, nodes: int, servers: int = 0, ranks: int = 1) -> "Job":
        """The job, submitted."""
        self.num_jobs += 1
        environment = self.environment | {
            "SERVERS": str(servers),
            "RANKS": str(ranks),
            "FAKE_SLURM_JOB": str(self.num_jobs),
        }
        line = ["sbatch", "--parsable", f"--nodes={nodes}", "--gpus-per-node=0", str(ROOT / "examples" / "slurm.sh")]
        return self._submitted(root, [*line, str(root), *more, *SMALL], environment)

    def again(self, job: "Job") -> "Job":
        """The same job once more, as Slurm queues it again after it has lost a node."""
        return self._submitted(job.root, job.line, job.environment)

    def _submitted(self, root: Path, line: list[str], environment: dict[str, str]) -> "Job":
        subprocess.run(line, cwd=self.folder, env=environment, capture_output=True, text=True, check=True)
        return Job(self, root, line, environment)


class Job:
    """A job that runs."""

    def __init__(self, cluster: Cluster, root: Path, line: list[str], environment: dict[str, str]) -> None:
        self.cluster, self.root, self.line, self.environment = cluster, root, line, environment
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

    def until_said(self, text: str) -> None:
        """Until one of the logs has it."""
        since = time.monotonic()
        while text not in self.said():
            assert self.running(), self.said()
            assert time.monotonic() - since < LIMIT_S, self.said()
            time.sleep(0.1)

    def end(self) -> float:
        """Seconds until it is over and no process is left on any node."""
        since = time.monotonic()
        while self.running() or any(namespaces.pids(name) for name in self.cluster.names):
            assert time.monotonic() - since < LIMIT_S, f"it hangs: {self.said()}"
            time.sleep(0.1)
        return round(time.monotonic() - since, 1)

    def said(self) -> str:
        logs = (*self.root.glob("launch/*.log"), *self.cluster.folder.glob("slurm-*.out"))
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
    config = ("--config", "smoke", *by_strategy(strategy))
    whole, killed, fewer = (cluster.folder / f"{strategy}-{name}" for name in ("whole", "killed", "fewer"))
    whole_s = cluster.launch(whole, *config, nodes=2).end()
    assert num_updates(whole) == UPDATES, "the undisturbed run did not end"
    found: dict[str, Any] = {"strategy": strategy, "whole_s": whole_s, "updates": UPDATES}

    job = cluster.launch(killed, *config, nodes=2)
    job.until(3)
    namespaces.kill(cluster.names[1])
    found["ends_after_loss_of_a_node_s"] = job.end()
    found["updates_at_loss"] = num_updates(killed)
    assert num_updates(killed) < UPDATES, "the node was killed too late"
    cluster.again(job).end()
    assert num_updates(killed) == UPDATES
    found["difference_after_going_on_with_two_nodes"] = difference(killed, whole)
    assert found["difference_after_going_on_with_two_nodes"] == 0.0

    job = cluster.launch(fewer, *config, nodes=2)
    job.until(3)
    namespaces.kill(cluster.names[1])
    job.end()
    alone = cluster.launch(fewer, *config, "--accept_changes", "true", nodes=1)
    alone.until(5)
    os.kill(alone.pid, signal.SIGUSR1)  # as Slurm does before the time is up
    found["stops_after_signal_s"] = alone.end()
    found["updates_at_signal"] = num_updates(fewer)
    cluster.launch(fewer, *config, "--accept_changes", "true", nodes=1, ranks=2).end()
    assert num_updates(fewer) == UPDATES
    found["difference_after_two_nodes_one_node_two_ranks"] = difference(fewer, whole)
    assert found["difference_after_two_nodes_one_node_two_ranks"] < 1e-3
    return found


def served(cluster: Cluster, strategy: str) -> dict[str, Any]:
    """The same where the two nodes sample from a stand-in server on a third."""
    config = (*SERVED, *by_strategy(strategy), "--trainer.callbacks", BLIND)
    third = cluster.names[2]
    whole, killed, fewer = (cluster.folder / f"served-{strategy}-{name}" for name in ("whole", "killed", "fewer"))
    found: dict[str, Any] = {"strategy": strategy, "servers": "stand-in"}
    found["whole_s"] = cluster.launch(whole, *config, nodes=3, servers=1).end()
    found["updates"] = num_updates(whole)
    assert found["updates"] == UPDATES, "the undisturbed run did not end"
    found["weights_moved_by"] = moved(whole)
    assert found["weights_moved_by"] > 0

    job = cluster.launch(killed, *config, nodes=3, servers=1)
    job.until(1)
    kill_server(third)
    job.until_said("it is started again")
    job.until(3)
    with namespaces.cut_off(third):
        time.sleep(CUT_OFF_S)
        assert job.running(), job.said()
    found["updates_at_loss"] = num_updates(killed)
    assert found["updates_at_loss"] <= 4, "it went on without a server"
    namespaces.kill(third)
    found["ends_after_loss_of_the_servers_s"] = job.end()
    assert "the servers ended before the training did" in job.said()
    shutil.copytree(killed, fewer, symlinks=True)
    cluster.again(job).end()
    found["difference_after_going_on_with_three_nodes"] = difference(killed, whole)
    assert found["difference_after_going_on_with_three_nodes"] == 0.0

    cluster.launch(fewer, *config, "--accept_changes", "true", nodes=2, servers=1).end()
    found["difference_after_going_on_with_two_nodes"] = difference(fewer, whole)
    assert found["difference_after_going_on_with_two_nodes"] < 1e-3
    assert num_updates(killed) == num_updates(fewer) == UPDATES
    return found


def with_vllm(cluster: Cluster, strategy: str) -> dict[str, Any]:
    """The two nodes sample from vLLM on the third."""
    config = (*SERVED, *by_strategy(strategy))
    whole, killed = (cluster.folder / f"vllm-{strategy}-{name}" for name in ("whole", "killed"))
    found: dict[str, Any] = {"strategy": strategy, "servers": "vllm"}
    found["whole_s"] = cluster.launch(whole, *config, nodes=3, servers=1).end()
    job = cluster.launch(killed, *config, nodes=3, servers=1)
    job.until(3)
    namespaces.kill(cluster.names[2])
    found["ends_after_loss_of_the_servers_s"] = job.end()
    found["updates_at_loss"] = num_updates(killed)
    assert found["updates_at_loss"] < UPDATES, "the node was killed too late"
    cluster.again(job).end()
    for root in (whole, killed):
        assert num_updates(root) == UPDATES
        rows = list(csv.DictReader((root / "metrics.csv").open()))
        for key in ("rollout/num_failed", "rollout/token_drift", "train/max_logprob_gap", "engine/self_test_gap"):
            found[key] = max(found.get(key, 0.0), *(float(row[key]) for row in rows if row.get(key)))
    assert found["rollout/num_failed"] == found["rollout/token_drift"] == 0.0, found
    assert max(found["train/max_logprob_gap"], found["engine/self_test_gap"]) < 1e-4, found
    found["difference_after_loss_of_the_servers"] = difference(killed, whole)
    return found


def kill_server(name: str) -> None:
    """The server on a node, but not what would start it again."""
    for pid in namespaces.pids(name):
        if SERVER in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
            os.kill(pid, signal.SIGKILL)


def moved(root: Path) -> float:
    """Largest change of any weight since the first checkpoint that is left."""
    oldest = min(CheckpointFolder(root / "checkpoints").kept(), key=num_updates_of)
    before, after = read_checkpoint(oldest).weights(), weights(root)
    return max(float((before[name] - after[name]).abs().max()) for name in after)


def main() -> None:
    """All of it, in one temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", default=["ddp", "fsdp2"])
    parser.add_argument("--parts", nargs="+", choices=["alone", "served", "vllm"])
    parser.add_argument("--vllm", help="Python of an environment with vLLM; without it none of vLLM's servers")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if reason := namespaces.unavailable():
        sys.exit(f"no network namespaces here: {reason}")
    parts = options.parts or ["alone", "served", *(["vllm"] if options.vllm else [])]
    record: dict[str, Any] = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    runs = {_key(run): run for run in record.get("runs", [])}
    with tempfile.TemporaryDirectory() as name, namespaces.nodes(3) as nodes:
        folder = Path(name)
        record["addresses"] = list(nodes)
        stand_in = [stand_in_vllm.install(folder / "path")]
        real = str(Path(options.vllm).absolute()) if options.vllm else ""
        work = {
            "alone": (of_strategy, Cluster(nodes, folder / "alone", sys.executable)),
            "served": (served, Cluster(nodes, folder / "served", sys.executable, stand_in)),
            "vllm": (with_vllm, Cluster(nodes, folder / "vllm", real)),
        }
        for part in parts:
            for strategy in options.strategies:
                run = work[part][0](work[part][1], strategy)
                print(json.dumps(run), file=sys.stderr, flush=True)
                runs[_key(run)] = run
                record["runs"] = list(runs.values())
                if options.out:
                    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record))


def _key(run: Mapping[str, Any]) -> tuple[str, str]:
    return run.get("servers", ""), run["strategy"]


if __name__ == "__main__":
    main()
