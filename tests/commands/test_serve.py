"""`serve` starts the servers of a config, starts those again that die, and leaves none behind, however it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jsonargparse import Namespace
from transformers import MixtralConfig

from cod_lightning.commands.serve import _check
from cod_lightning.engines.vllm_server.engine import VLLMServerEngine
from cod_lightning.errors import ConfigError
from cod_lightning.models import PretrainedPolicy, TinyPolicy
from tests import stand_in_vllm
from tests.command_line import COMMAND, ROOT
from tests.test_slurm import alive

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")]


def free_ports():
    """The first of two that are free."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1] & ~1


class Serving:
    """The command in a process of its own, and its servers."""

    def __init__(self, folder, base, *more, under=()):
        path = stand_in_vllm.install(folder / "path")
        self.folder, self.port = folder, free_ports()
        line = [*COMMAND, "serve", "--config", "smoke", "engine=VLLMServerEngine", "--warm_start", "null", *more]
        line += ["--model.policy", "cod_lightning.models.PretrainedPolicy", "--model.policy.path", str(base)]
        line += ["--model.policy.window", "64", "--model.policy.dtype", "float32", "--logs", str(folder / "logs")]
        line += ["--port", str(self.port), "--num_servers", "2", "--host", "0.0.0.0"]
        environment = os.environ | {"PYTHONPATH": f"{ROOT}:{path}", "VLLM_API_KEY": "hush"}
        with (folder / "out").open("w") as out:
            self.process = subprocess.Popen([*under, *line], env=environment, cwd=folder, stdout=out, stderr=out)

    def said(self):
        return (self.folder / "out").read_text()

    def until(self, holds, limit_s=90.0):
        deadline = time.monotonic() + limit_s
        while not holds():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def until_ready(self):
        self.until(lambda: self.said().count("serving 64 tokens at") == 2)

    def servers(self):
        found = []
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                line = entry.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"cod_lightning.engines.vllm_server.main" in line and str(self.folder).encode() in b" ".join(line):
                found.append(int(entry.parent.name))
        return [pid for pid in found if alive(pid)]


@pytest.fixture
def serving(tmp_path, base):
    # the stand-in is named in the command lines of its servers by the folder that they are started from
    folder = tmp_path / "serving"
    folder.mkdir()
    copy = folder / "base"
    copy.symlink_to(base)
    one = Serving(folder, copy)
    yield one
    if one.process.poll() is None:
        one.process.kill()
    one.process.wait()
    one.until(lambda: not one.servers())


def test_a_server_that_dies_is_started_again_and_none_outlives_the_command_that_is_killed(serving):
    serving.until_ready()
    before = serving.servers()
    assert len(before) == 2
    log = (serving.folder / "logs" / "vllm_server_1.log").read_text()
    assert f"--port {serving.port + 1}" in log
    assert "--logprobs-mode processed_logprobs" in log
    assert "hush" not in log
    os.kill(before[0], signal.SIGKILL)
    serving.until(lambda: "it is started again" in serving.said() and len(serving.servers()) == 2)
    assert set(serving.servers()) != set(before)
    serving.process.kill()
    serving.process.wait(30)
    serving.until(lambda: serving.servers() == [], 20.0)


@pytest.mark.soak
def test_no_server_outlives_a_command_that_is_asked_to_end(serving):
    serving.until_ready()
    serving.process.terminate()
    serving.process.wait(30)
    serving.until(lambda: serving.servers() == [], 20.0)


def test_no_server_outlives_what_started_it(tmp_path, base):
    folder = tmp_path / "serving"
    folder.mkdir()
    copy = folder / "base"
    copy.symlink_to(base)
    script = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
    one = Serving(folder, copy, under=(sys.executable, "-S", "-c", script))
    one.until_ready()
    one.process.kill()  # the parent of `serve`, which itself gets no signal
    one.process.wait()
    one.until(lambda: one.servers() == [], 20.0)


def test_servers_that_need_more_gpus_than_there_are_are_refused(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    options = Namespace(num_servers=3, gpus_per_server=2, port=8000)
    message = "--num_servers times --gpus_per_server is 3 times 2; expected at most the 4 GPUs"
    with pytest.raises(ConfigError, match=message):
        _check(options, VLLMServerEngine(), TinyPolicy())


def test_a_mixture_of_experts_is_refused_on_a_cpu_before_a_server_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "hush")
    monkeypatch.setattr("cod_lightning.commands.serve.check_local", lambda *_: None)  # vLLM need not be here
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    MixtralConfig(num_local_experts=4).save_pretrained(tmp_path)
    options = Namespace(num_servers=1, gpus_per_server=1, port=8000)
    with pytest.raises(ConfigError, match=r"model\.policy is mixtral with num_\w+; .* on a CPU"):
        _check(options, VLLMServerEngine(), PretrainedPolicy(str(tmp_path), window=64))
