"""`sbatch`, `srun` and `scontrol` that run a job with processes of this machine.

A node is a loopback address, or a network namespace with an address of its own.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

JOB = os.environ.get("FAKE_SLURM_JOB", "4242")
_KILL_WAIT = 3.0
"""Seconds in which the other tasks may end by themselves where one has failed; Slurm has 30."""


def install(folder: Path, namespaces: Mapping[str, str] | None = None) -> dict[str, str]:
    """Put the commands into the folder; the environment that finds them before any others.

    Args:
        namespaces: Address -> network namespace, in the order of nodes; null takes 127.0.0.1, 127.0.0.2 and so on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    nodes = namespaces or {f"127.0.0.{i + 1}": "" for i in range(16)}
    (folder / "nodes.json").write_text(json.dumps(nodes))
    for name in ("sbatch", "srun", "scontrol"):
        script = folder / name
        script.write_text(f'#!/bin/bash\nexec {sys.executable} -S {Path(__file__).resolve()} {name} "$@"\n')
        script.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "FAKE_SLURM": str(folder)}


def sbatch(arguments: list[str]) -> int:
    """Begin the job in the background; its output is slurm-JOB.out in the current folder, its process in FAKE_SLURM/pid."""
    place = next(i for i, argument in enumerate(arguments) if not argument.startswith("--"))
    script, *words = arguments[place:]
    said = re.findall(r"^#SBATCH (--.*)", Path(script).read_text(), flags=re.MULTILINE)
    asked = dict(one.removeprefix("--").partition("=")[::2] for one in (*said, *arguments[:place]))
    nodes, gpus = int(asked["nodes"]), int(asked["gpus-per-node"])
    environment = os.environ | {
        "SLURM_JOB_ID": JOB,
        "SLURM_JOB_NODELIST": f"node[1-{nodes}]",
        "SLURM_CPUS_ON_NODE": "1",
        **({"SLURM_GPUS_ON_NODE": str(gpus)} if gpus else {}),
    }
    with Path(f"slurm-{JOB}.out").open("ab") as out:
        child = subprocess.Popen(
            ["bash", script, *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    (Path(os.environ["FAKE_SLURM"]) / "pid").write_text(str(child.pid))
    print(JOB)
    return 0


def scontrol(arguments: list[str]) -> int:
    """The names of a job's nodes, or the record that it is to be queued again."""
    if arguments[:2] == ["show", "hostnames"]:
        number = int(arguments[2].partition("-")[2].rstrip("]"))
        print("\n".join(list(nodes())[:number]))
        return 0
    with (Path(os.environ["FAKE_SLURM"]) / "queue").open("a") as record:
        record.write(" ".join(arguments) + "\n")
    return 0


def srun(arguments: list[str]) -> int:
    """A task for each node. Passes signals on; ends all with the batch script, as Slurm does, or where one fails."""
    options = dict(a.removeprefix("--").partition("=")[::2] for a in arguments if a.startswith("--"))
    command = arguments[len(options) :]
    parent, number = os.getppid(), int(options["ntasks"])
    places = [nodes()[address] for address in options["nodelist"].split(",")]
    assert len(places) == number == int(options["nodes"])
    tasks = []
    for index, place in enumerate(places):
        line = ["ip", "netns", "exec", place, *command] if place else command
        tasks.append(subprocess.Popen(line, env=os.environ | {"SLURM_NODEID": str(index)}, start_new_session=True))
    for received in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(received, lambda number, frame: [task.send_signal(number) for task in tasks])
    while any(task.poll() is None for task in tasks):
        failed = "kill-on-bad-exit" in options and any(task.poll() for task in tasks)
        if os.getppid() != parent or failed:
            until = time.monotonic() + (_KILL_WAIT if failed else 0.0)
            while time.monotonic() < until and any(task.poll() is None for task in tasks):
                time.sleep(0.05)
            for task, place in zip(tasks, places, strict=True):
                if task.poll() is None:
                    descend(task.pid)
                    for left in inside(place):
                        descend(left)  # its parent had ended
        time.sleep(0.05)
    return max(abs(task.returncode) for task in tasks)


def nodes() -> dict[str, str]:
    """Address -> namespace."""
    return json.loads((Path(os.environ["FAKE_SLURM"]) / "nodes.json").read_text())


def inside(namespace: str) -> list[int]:
    """Processes in a network namespace, if one is named."""
    if not namespace:
        return []
    listed = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True)
    return [int(pid) for pid in listed.stdout.split()]


def descend(pid: int) -> None:
    """Kill a process with all that came of it, in sessions of their own too, as a node's cgroup does."""
    for child in Path(f"/proc/{pid}/task").glob("*/children"):
        for one in child.read_text().split():
            descend(int(one))
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit({"sbatch": sbatch, "scontrol": scontrol, "srun": srun}[sys.argv[1]](sys.argv[2:]))
