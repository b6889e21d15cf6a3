"""`launch`: what it renders runs as shell, stops, goes on and leaves nothing behind; what makes no sense is refused."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from cod_lightning.cli import main
from cod_lightning.commands.launch import rendered
from tests import fake_slurm

STUB = f"""#!{sys.executable} -S
import json, os, signal, subprocess, sys, time
def left(number, frame):
    sys.exit(143)
with open(os.environ["RECORD"], "a") as record:
    record.write(json.dumps(dict(argv=sys.argv[1:], pid=os.getpid(), key=os.environ.get("VLLM_API_KEY", ""))) + "\\n")
if "serve" in sys.argv:
    time.sleep(float(os.environ.get("SERVE_S", "60")))
elif sys.argv[1:] == ["rank"]:
    signal.signal(signal.SIGTERM, left)
    time.sleep(float(os.environ.get("TRAIN_S", "0")))
    sys.exit(int(os.environ.get("TRAIN_CODE", "0")))
else:
    sys.exit(1 if subprocess.call([__file__, "rank"]) else 0)
"""
HOSTILE = "run $(touch PWNED) `touch PWNED` 'a\" \\ ;touch PWNED;\ny"


def plan(folder, **changed):
    """Three machines on CPUs, one of which serves."""
    settings = {
        "root": folder / "run",
        "config": "config.yaml",
        "cwd": folder,
        "cache": folder / "cache",
        "python": str(folder / "python"),
        "num_trainers": 2,
        "num_server_nodes": 1,
        "gpus": 0,
        "processes": 3,
        "gpus_per_server": 1,
    }
    settings |= changed
    return SimpleNamespace(folder=settings["root"] / "launch", rendered=lambda: rendered(**settings))


class Job:
    """A rendered sbatch file under a Slurm of local processes, whose `python` is a stand-in."""

    def __init__(self, folder, made, **environment):
        stub = folder / "python"
        stub.write_text(STUB)
        stub.chmod(0o755)
        made.folder.mkdir(parents=True, exist_ok=True)
        self.script, self.folder = made.folder / "job.sh", folder
        self.script.write_text(made.rendered())
        self.environment = os.environ | fake_slurm.install(folder / "slurm") | {"RECORD": str(folder / "record")}
        self.environment |= environment
        self.environment.pop("VLLM_API_KEY", None)
        done = subprocess.run(
            ["sbatch", "--parsable", "job.sh"],
            cwd=made.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
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
        return (self.script.parent / f"slurm-{fake_slurm.JOB}.out").read_text()

    def requeued(self):
        return (self.folder / "slurm" / "queue").exists()


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def held_elsewhere(folder):
    """The folder while another process holds it."""
    hold = "import sys\nfrom pathlib import Path\nfrom cod_lightning.files import locked\n"
    hold += "with locked(Path(sys.argv[1]), 'key', 'x'): print('held', flush=True); sys.stdin.read()"
    line = [sys.executable, "-c", hold, str(folder)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        yield
        other.stdin.close()


def ranks(job):
    return [one for one in job.started() if one["argv"] == ["rank"]]


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")


@pytest.mark.slow
@needs_proc
def test_a_job_starts_servers_and_agents_with_one_key_ends_them_with_the_training_and_runs_no_name_as_shell(tmp_path):
    folder, precious = tmp_path / HOSTILE, tmp_path / "precious"
    folder.mkdir()
    made = plan(folder, python=str(tmp_path / "python"))
    precious.write_text("precious")
    made.folder.mkdir(parents=True)
    for name in ("train.0.log", "serve.0.log", "ended"):
        (made.folder / name).symlink_to(precious)
    before = precious.stat().st_mtime_ns
    job = Job(tmp_path, made, TRAIN_S="0.2")
    job.until_over()
    assert precious.stat().st_mtime_ns == before
    assert not any(path.is_symlink() for path in made.folder.iterdir()), "links are replaced and never written through"
    serve, *agents = sorted(
        (one for one in job.started() if one["argv"] != ["rank"]), key=lambda one: "fit" in one["argv"]
    )
    config = str(made.folder / "config.yaml")
    assert serve["argv"][:6] == ["-m", "cod_lightning", "serve", "--config", config, "--host"]
    ports = {one["argv"][one["argv"].index("--master_port") + 1] for one in agents}
    assert len(ports) == 1
    for one in agents:
        asked = dict(zip(one["argv"][2:14:2], one["argv"][3:15:2], strict=True))
        assert asked["--nnodes"] == "2"
        assert asked["--nproc_per_node"] == "3"
        assert asked["--master_addr"] == "127.0.0.1"
        assert one["argv"][-6:-2] == ["--config", config, "--ckpt_path", "auto"]
        port = serve["argv"][serve["argv"].index("--port") + 1]
        assert one["argv"][-2:] == ["--data.engine.init_args.urls", f"[http://127.0.0.3:{port}]"]
    assert {one["argv"][one["argv"].index("--node_rank") + 1] for one in agents} == {"0", "1"}
    keys = {one["key"] for one in job.started()}
    assert len(keys) == 1
    assert len(keys.pop()) == 64
    assert not job.requeued()
    assert job.said() == ""
    assert "#SBATCH --job-name=cod-run" in job.script.read_text().splitlines()
    assert [*tmp_path.rglob("PWNED")] == []


@needs_proc
@pytest.mark.slow
def test_before_its_time_is_up_the_ranks_are_asked_to_stop_and_the_job_is_queued_again(tmp_path):
    job = Job(tmp_path, plan(tmp_path), TRAIN_S="60")
    job.until(lambda: len(ranks(job)) == 2)
    os.kill(job.pid, signal.SIGUSR1)
    job.until_over()
    assert (tmp_path / "slurm" / "queue").read_text() == f"requeue {fake_slurm.JOB}\n"


@needs_proc
@pytest.mark.slow
def test_a_training_that_fails_ends_the_job_with_its_logs_named(tmp_path):
    job = Job(tmp_path, plan(tmp_path), TRAIN_S="0.1", TRAIN_CODE="3")
    job.until_over()
    assert "error: the training ended with code 1; see" in job.said()
    assert not job.requeued()


@needs_proc
@pytest.mark.slow
def test_servers_that_end_first_end_the_job(tmp_path):
    job = Job(tmp_path, plan(tmp_path), TRAIN_S="60", SERVE_S="0.1")
    job.until_over()
    assert "error: the servers ended before the training did" in job.said()


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_that_is_killed_leaves_no_process_behind(number, tmp_path):
    job = Job(tmp_path, plan(tmp_path), TRAIN_S="60")
    job.until(lambda: len(job.started()) == 5)
    os.kill(job.pid, number)
    job.until_over()
    assert not job.requeued()


def test_the_task_for_skypilot_starts_the_ranks_of_every_machine(tmp_path):
    task = yaml.safe_load((Path(__file__).parents[2] / "examples" / "sky.yaml").read_text())
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


@pytest.mark.slow
def test_a_config_that_cannot_work_is_refused_before_anything_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    argv = ["launch", "--config", "smoke", "--nodes", "2", "--gpus", "0", "--warm_start", "null"]
    assert main([*argv, "--data.packs_per_rollout", "4"]) == 2
    assert "data.packs_per_rollout is 4; expected a multiple of" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
def test_servers_get_a_folder_that_all_see_and_no_address_before_the_job_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    argv = ["launch", "--config", "smoke", "engine=VLLMServerEngine", "--nodes", "3", "--servers", "1", "--gpus", "4"]
    assert main([*argv, "--warm_start", "null", "--data.packs_per_rollout", "32", "--dry_run"]) == 0
    assert "#SBATCH --nodes=3" in capsys.readouterr().out
    assert [*tmp_path.iterdir()] == []
    more = ["--sbatch", "[--partition=gpu, '--comment=two words']", "--data.packs_per_rollout", "32"]
    assert main([*argv, "--warm_start", "null", *more]) == 0
    said = capsys.readouterr().out
    assert "No sbatch here; where Slurm is: cd" in said
    assert "sbatch --parsable --partition=gpu '--comment=two words' job.sh" in said
    (file,) = (tmp_path / "runs" / "smoke" / "launch").glob("config-*.yaml")
    config = yaml.safe_load(file.read_text())
    trainer, engine = config["trainer"], config["data"]["engine"]["init_args"]
    assert (trainer["num_nodes"], trainer["devices"], trainer["accelerator"]) == (2, 4, "gpu")
    assert engine["weights_folder"] == str(tmp_path / "runs" / "smoke" / "launch" / "weights")
    assert engine["wait_s"] == engine["return_s"] == 900.0
    with pytest.raises(SystemExit) as ended:  # every key is one of `fit`
        main(["fit", "--config", str(file), "--print_config"])
    assert not ended.value.code


@pytest.mark.slow
def test_jobs_launched_on_one_folder_each_train_their_own_config_and_one_is_launched_at_a_time(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    root = tmp_path / "run"
    argv = ["launch", "--config", "smoke", "--gpus", "0", "--trainer.default_root_dir", str(root)]
    for rate in ("1e-3", "2e-3"):
        assert main([*argv, "--warm_start", "null", "--model.lr", rate]) == 0
        (root / "launch" / "job.sh").rename(tmp_path / rate)
    for rate in ("1e-3", "2e-3"):
        (file,) = {name for name in (tmp_path / rate).read_text().split() if name.startswith('"$LAUNCH"/')}
        content = yaml.safe_load((root / "launch" / file.partition("/")[2]).read_text())
        assert content["model"]["lr"] == float(rate)
    for folder, what in ((root / "launch", "launch"), (root, "fit")):
        with held_elsewhere(folder):
            capsys.readouterr()
            assert main([*argv, "--warm_start", "null"]) == 2
            said = capsys.readouterr().err
        assert f"in which no {'other ' * (what == 'launch')}{what} runs" in said, said
        assert said.strip().count("\n") == 0


@pytest.mark.slow
def test_a_job_that_would_go_on_with_another_config_is_refused_before_it_waits(tmp_path, capsys):
    root = tmp_path / "run"
    argv = ["launch", "--config", "smoke", "--gpus", "0", "--trainer.default_root_dir", str(root)]
    assert main(argv) == 0
    (config,) = (root / "launch").glob("config-*.yaml")
    run = {"config": yaml.safe_load(config.read_text()), "num_processes": 1}
    (root / "checkpoints").mkdir()
    torch.save({"cod_lightning": {"version": "0"}, "run_config": run}, root / "checkpoints" / "last.ckpt")
    assert main([*argv, "--data.group_size", "6"]) == 2
    assert "data.group_size" in capsys.readouterr().err
    assert main(argv) == 0
