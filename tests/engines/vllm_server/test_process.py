"""What is started here ends with the process that started it, and says why it did not start."""

import asyncio
import socket
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from cod_lightning.engines.base import Served
from cod_lightning.engines.vllm_server.engine import VLLMServerEngine
from cod_lightning.engines.vllm_server.guard import KeyGuard
from cod_lightning.engines.vllm_server.process import LocalServers, ServerProcess
from cod_lightning.errors import ConfigError, EngineFailure
from tests.cases import each
from tests.forked import alive

CHILD = (
    "import threading, time; from cod_lightning.engines.vllm_server.main import _end_with_parent;"
    "threading.Thread(target=_end_with_parent, daemon=True).start(); time.sleep(60)"
)
PARENT = (
    "import subprocess, sys, time\n"
    f"child = subprocess.Popen([sys.executable, '-c', {CHILD!r}], stdin=subprocess.PIPE, start_new_session=True)\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(60)\n"
)


def process(tmp_path, **how) -> ServerProcess:
    return ServerProcess(
        LocalServers(**how), index=0, model=tmp_path, dtype="float32", window=64, log=tmp_path / "a.log", key="hush"
    )


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")
def test_a_server_ends_with_the_process_that_started_it_even_if_that_one_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    until = time.monotonic() + 20
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    assert not alive(pid)


def test_a_server_that_does_not_start_is_told_of_with_the_end_of_its_log(tmp_path, monkeypatch):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "a.log").symlink_to(tmp_path / "precious")
    server = process(tmp_path)
    monkeypatch.setattr(server, "_arguments", lambda: ["--no-such-flag"])
    monkeypatch.setattr(sys, "executable", "/bin/ls")  # ends at once, with code 2 and words of its own
    server.start()
    with pytest.raises(EngineFailure, match=r"ended with code 2; its log .*a\.log ends: .*no-such-flag"):
        server.wait(lambda: False)
    server.stop()
    assert (tmp_path / "precious").read_text() == "precious", "a link is replaced and never written through"


def test_a_server_that_the_system_cannot_end_is_left(tmp_path, monkeypatch):
    class Stuck:
        """A process that waits for a driver."""

        pid, stdin = 1, None

        def wait(self, timeout=None):
            assert timeout is not None, "it would be waited for for ever"
            raise subprocess.TimeoutExpired("vllm", timeout)

    server = process(tmp_path)
    monkeypatch.setattr("os.killpg", lambda *_: None)
    server._child = Stuck()
    server.stop()
    assert not server.alive


@pytest.mark.slow
def test_a_server_that_starts_for_ever_is_given_up(tmp_path, monkeypatch):
    server = process(tmp_path, start_timeout_s=0.05)
    monkeypatch.setattr(type(server), "alive", True)
    with pytest.raises(EngineFailure, match=r"0\.05 s after its start \(data\.engine\.local\.start_timeout_s\)"):
        server.wait(lambda: False)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="looks at /proc")
def test_the_key_is_sent_to_nobody_before_this_user_listens_at_the_port(tmp_path, monkeypatch):
    server = process(tmp_path, start_timeout_s=0.3)
    monkeypatch.setattr(type(server), "alive", True)
    asked = []
    with pytest.raises(EngineFailure, match=r"does not answer 0\.3 s after its start"):
        server.wait(lambda: asked.append(1) or True)
    assert not asked
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", server.port))
        listener.listen()
        server.wait(lambda: asked.append(1) or True)
        assert asked == [1]
        monkeypatch.setattr("os.getuid", lambda: 12345)
        with pytest.raises(EngineFailure, match="another user of this machine listens"):
            server.wait(lambda: asked.append(1) or True)
    assert asked == [1]


def test_each_server_gets_its_gpus_and_the_key_and_no_other_s(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    server = process(tmp_path, devices=("2,3",))
    environment = server._environment()
    assert environment["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert environment["VLLM_API_KEY"] == "hush"
    assert environment["VLLM_SERVER_DEV_MODE"] == "1"
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in environment
    arguments = server._arguments()
    assert "hush" not in " ".join(arguments)
    assert arguments[arguments.index("--host") + 1] == "127.0.0.1"
    assert arguments[arguments.index("--middleware") + 1] == "cod_lightning.engines.vllm_server.guard.KeyGuard"


@each(
    ("how", "over"),
    [
        ({"devices": ("0",)}, ["1"]),
        ({"devices": ("2, 3",)}, ["2"]),
        ({}, []),
        ({"devices": ("0,1,2,3",), "arguments": ("--tensor-parallel-size", "2")}, ["4", "2"]),  # vLLM takes the last
    ],
)
def test_a_server_is_spread_over_all_its_gpus_unless_its_arguments_say_otherwise(tmp_path, how, over):
    arguments = process(tmp_path, **how)._arguments()
    after = [arguments[i + 1] for i, word in enumerate(arguments) if word == "--tensor-parallel-size"]
    assert after == over


@each("path", ["/health", "/collective_rpc", "/inference/v1/generate", "/sleep", "/v1/models"])
@each("header", [None, b"", b"Bearer", b"Bearer wrong", b"bearer hush", b"Bearer hush2", b"hush"])
def test_a_started_server_answers_no_route_without_its_key(monkeypatch, path, header):
    monkeypatch.setenv("VLLM_API_KEY", "hush")
    assert asked(path, header) == (401, 0)
    assert asked(path, b"Bearer hush") == (200, 1)


def test_a_started_server_closes_a_websocket_without_its_key_and_starts_without_one(monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "hush")
    assert asked("/v1/realtime", None, kind="websocket") == (1008, 0)
    assert asked("", None, kind="lifespan") == (200, 1)


def asked(path, header, kind="http"):
    """(status, calls of the server behind the guard)."""
    sent, calls = [], []

    async def behind(scope, receive, send):
        calls.append(scope)
        await send({"type": "http.response.start", "status": 200})

    async def send(message):
        sent.append(message)

    headers = [] if header is None else [(b"authorization", header)]
    asyncio.run(KeyGuard(behind)({"type": kind, "path": path, "headers": headers}, None, send))
    return sent[0].get("status") or sent[0]["code"], len(calls)


def test_devices_are_counted_for_all_ranks_before_these_are_there(monkeypatch):
    def missing(name):
        raise PackageNotFoundError

    monkeypatch.setattr("cod_lightning.engines.vllm_start.version", missing)
    for devices, said in ((("2", "3"), "vLLM in this environment"), (("2",), "2 entries, one for each server")):
        engine = VLLMServerEngine(local=LocalServers(devices=devices))
        engine.num_ranks = 2
        with pytest.raises(ConfigError, match=said):
            engine.check(Served())
