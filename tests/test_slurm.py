"""`examples/slurm.sh`: it starts a training on every machine, stops, goes on and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests import fake_slurm
from tests.forked import alive

STUB = f"""#!{sys.executable} -S
import json, os, signal, subprocess, sys, time
def left(number, frame):
    sys.exit(143)
if sys.argv[-1] == "--print_config":
    print(json.dumps(sys.argv[1:]))
    sys.exit()
with open(os.environ["RECORD"], "a") as record:
    record.write(json.dumps(dict(argv=sys.argv[1:], pid=os.getpid(), key=os.environ.get("VLLM_API_KEY", ""))) + "\\n")
if "serve" in sys.argv[1:4]:
    time.sleep(float(os.environ.get("SERVE_S", "60")))
elif sys.argv[1:] == ["rank"]:
    signal.signal(signal.SIGTERM, left)
    time.sleep(float(os.environ.get("TRAIN_S", "0")))
    sys.exit(int(os.environ.get("TRAIN_CODE", "0")))
else:
    sys.exit(1 if subprocess.call([__file__, "rank"]) else 0)
"""
SCRIPT = Path(__file__).parents[1] / "examples" / "slurm.sh"
HOSTILE = "run $(touch PWNED) `touch PWNED` 'a\" \\ ;touch PWNED;\ny"


class Job:
    """The sbatch file under a Slurm of local processes, on three machines of which one serves; its `python` is a stand-in."""

    def __init__(self, folder, root=None, **environment):
        stub = folder / "python"
        stub.write_text(STUB)
        stub.chmod(0o755)
        self.folder, self.root = folder, root or folder / "run"
        self.environment = os.environ | fake_slurm.install(folder / "slurm") | {"RECORD": str(folder / "record")}
        self.environment |= {"PYTHON": str(stub), "SERVERS": "1", "RANKS": "3"} | environment
        self.environment.pop("VLLM_API_KEY", None)
        line = [
            "sbatch",
            "--parsable",
            "--nodes=3",
            "--gpus-per-node=0",
            str(SCRIPT),
            str(self.root),
            "--model.lr",
            HOSTILE,
        ]
        done = subprocess.run(line, cwd=folder, env=self.environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == fake_slurm.JOB
        self.pid = int((folder / "slurm" / "pid").read_text())

    def started(self):
        """What the stand-ins were called with."""
        record = self.folder / "record"
        return [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []

    def until(self, holds, limit_s=20.0):
        deadline = time.monotonic() + limit_s
        while not holds():
            assert time.monotonic() < deadline, (self.started(), self.said())
            time.sleep(0.02)

    def until_over(self):
        self.until(lambda: not alive(self.pid))
        self.until(lambda: not any(alive(one["pid"]) for one in self.started()))

    def said(self):
        return (self.folder / f"slurm-{fake_slurm.JOB}.out").read_text()

    def requeued(self):
        return (self.folder / "slurm" / "queue").exists()


def ranks(job):
    return [one for one in job.started() if one["argv"] == ["rank"]]


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")


@pytest.mark.slow
@needs_proc
def test_a_job_starts_servers_and_agents_with_one_key_ends_them_with_the_training_and_runs_no_name_as_shell(tmp_path):
    root, precious = tmp_path / HOSTILE, tmp_path / "precious"
    precious.write_text("precious")
    (launch := root / "launch").mkdir(parents=True)
    for name in ("train.0.log", "serve.0.log", "ended"):
        (launch / name).symlink_to(precious)
    before = precious.stat().st_mtime_ns
    job = Job(tmp_path, root, TRAIN_S="0.2")
    job.until_over()
    assert precious.stat().st_mtime_ns == before
    assert not any(path.is_symlink() for path in launch.iterdir()), "links are replaced and never written through"
    serve, *agents = sorted(
        (one for one in job.started() if one["argv"] != ["rank"]), key=lambda one: "fit" in one["argv"]
    )
    (config,) = map(str, launch.glob("config-*"))
    typed = json.loads(Path(config).read_text())
    asked = dict(zip(typed[3:-1:2], typed[4:-1:2], strict=True))
    assert asked["--model.lr"] == HOSTILE
    assert asked["--data.engine.weights_folder"] == str(launch / "weights")
    assert serve["argv"][:6] == ["-m", "cod_lightning", "serve", "--config", config, "--host"]
    ports = {one["argv"][one["argv"].index("--master_port") + 1] for one in agents}
    assert len(ports) == 1
    for one in agents:
        asked = dict(zip(one["argv"][2:14:2], one["argv"][3:15:2], strict=True))
        assert asked["--nnodes"] == "2"
        assert asked["--nproc_per_node"] == "3"
        assert asked["--master_addr"] == "127.0.0.1"
        fit = one["argv"][one["argv"].index("fit") + 1 :]
        asked = dict(zip(fit[::2], fit[1::2], strict=True))
        assert (asked["--config"], asked["--ckpt_path"]) == (config, "auto")
        assert asked["--trainer.default_root_dir"] == str(root)
        assert [asked[f"--trainer.{key}"] for key in ("num_nodes", "devices", "accelerator")] == ["2", "3", "cpu"]
        port = serve["argv"][serve["argv"].index("--port") + 1]
        assert asked["--data.engine.init_args.urls"] == f"[http://127.0.0.3:{port}]"
    assert {one["argv"][one["argv"].index("--node_rank") + 1] for one in agents} == {"0", "1"}
    keys = {one["key"] for one in job.started()}
    assert len(keys) == 1
    assert len(keys.pop()) == 64
    assert not job.requeued()
    assert job.said() == ""
    assert [*tmp_path.rglob("PWNED")] == []


@needs_proc
@pytest.mark.slow
def test_before_its_time_is_up_the_ranks_are_asked_to_stop_and_the_job_is_queued_again(tmp_path):
    job = Job(tmp_path, TRAIN_S="60")
    job.until(lambda: len(ranks(job)) == 2)
    os.kill(job.pid, signal.SIGUSR1)
    job.until_over()
    assert (tmp_path / "slurm" / "queue").read_text() == f"requeue {fake_slurm.JOB}\n"


@needs_proc
@pytest.mark.slow
def test_a_link_in_place_of_the_folder_of_logs_gives_way_to_a_folder(tmp_path):
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (launch := tmp_path / "run" / "launch").symlink_to(elsewhere)
    job = Job(tmp_path, TRAIN_S="0.1")
    job.until_over()
    assert not launch.is_symlink()
    assert [*launch.glob("config-*.yaml")]
    assert [*elsewhere.iterdir()] == []


@needs_proc
@pytest.mark.slow
def test_a_training_that_fails_ends_the_job_with_its_logs_named(tmp_path):
    job = Job(tmp_path, TRAIN_S="0.1", TRAIN_CODE="3")
    job.until_over()
    assert "error: the training ended with code 1; see" in job.said()
    assert not job.requeued()


@needs_proc
@pytest.mark.slow
def test_servers_that_end_first_end_the_job(tmp_path):
    job = Job(tmp_path, TRAIN_S="60", SERVE_S="0.1")
    job.until_over()
    assert "error: the servers ended before the training did" in job.said()


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_that_is_killed_leaves_no_process_behind(number, tmp_path):
    job = Job(tmp_path, TRAIN_S="60")
    job.until(lambda: len(job.started()) == 5)
    os.kill(job.pid, number)
    job.until_over()
    assert not job.requeued()


def test_the_task_for_skypilot_starts_the_ranks_of_every_machine(tmp_path):
    task = yaml.safe_load(SCRIPT.with_name("sky.yaml").read_text())
    (tmp_path / "python").write_text(STUB)
    (tmp_path / "torchrun").symlink_to("python")
    (tmp_path / "python").chmod(0o755)
    given = {"SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.2", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NUM_GPUS_PER_NODE": "8"}
    given |= {"RECORD": str(tmp_path / "record"), "PATH": f"{tmp_path}:{os.environ['PATH']}", **task["envs"]}
    for rank in range(task["num_nodes"]):
        environment = os.environ | given | {"SKYPILOT_NODE_RANK": str(rank)}
        subprocess.run(["bash", "-c", task["run"]], env=environment, cwd=tmp_path, check=True)
    agents = [
        one for line in (tmp_path / "record").read_text().splitlines() if "fit" in (one := json.loads(line)["argv"])
    ]
    found = [dict(zip(argv[:10:2], argv[1:10:2], strict=True)) for argv in agents]
    assert [one["--node_rank"] for one in found] == ["0", "1"]
    assert all(
        (one["--nnodes"], one["--nproc_per_node"], one["--master_addr"]) == ("2", "8", "127.0.0.1") for one in found
    )
    assert all(argv[-2:] == ["--ckpt_path", "auto"] for argv in agents)
