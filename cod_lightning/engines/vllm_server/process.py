"""vLLM servers that the training starts itself: an engine in a process of its own, on this machine."""

import atexit
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

import torch

from cod_lightning.engines.vllm_server.guard import KEY, KeyGuard
from cod_lightning.engines.vllm_start import check_installed, engine_options
from cod_lightning.errors import ConfigError, EngineFailure
from cod_lightning.files import without_link
from cod_lightning.ranges import Count, Positive, PositiveShare

_LINES_SHOWN = 3
_SOCKETS, _LISTENING = Path("/proc/net/tcp"), "0A"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_ERROR = re.compile(r"\w(Error|Exception): |error: ")


@dataclass(frozen=True, kw_only=True)
class LocalServers:
    """How vLLM servers on this machine are started."""

    devices: tuple[str, ...] = ()
    """What each one gets as CUDA_VISIBLE_DEVICES, for example [1, "2,3"]; empty leaves it to the environment. One with several is
    spread over them (tensor parallel), as far as `arguments` say nothing else."""
    dtype: str | None = None
    """What vLLM computes in; null takes the model's own."""
    max_num_seqs: Count = 256
    """Requests that one server decodes at a time; further ones wait."""
    gpu_memory_utilization: PositiveShare = 0.9
    """Share of its GPU's memory for weights and cache."""
    kv_cache_gb: Positive | None = None
    """Size of the cache in GiB; null is what the share above leaves, on a CPU 1."""
    arguments: tuple[str, ...] = ()
    """Further arguments of vLLM's server, for example [--max-num-batched-tokens, "8192"]."""
    start_timeout_s: Positive = 900.0
    """Most time until one answers."""


@dataclass(eq=False)
class ServerProcess:
    """One server, and everything it started; both end with this process, however that ends."""

    how: LocalServers
    _: KW_ONLY
    index: int
    """Its place among all servers that are started here, by all ranks."""
    model: Path | str
    """Folder with the model's config and weights, or its name on the hub."""
    dtype: str
    window: int
    log: Path
    """File that takes the server's output."""
    key: str = field(repr=False)
    """Asked for at every route; not empty. The server gets it by its environment, which other users cannot read."""
    sleep: bool = False
    adapter_rank: int = 0
    """Largest rank of an adapter to have room for; 0 is for none."""
    host: str = "127.0.0.1"
    """Address to listen at; 0.0.0.0 is every one of this machine's."""
    port: int = 0
    """0 takes a free one."""

    def __post_init__(self) -> None:
        if not self.port:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = int(probe.getsockname()[1])
        self.url = f"http://{'127.0.0.1' if self.host == '0.0.0.0' else self.host}:{self.port}"
        self._child: subprocess.Popen[bytes] | None = None
        self._begun = time.monotonic()
        """When it was last started."""

    def start(self, model: Path | str | None = None) -> None:
        """Begin to start, without waiting; `model` replaces the folder where the first one is gone."""
        self.stop()
        self.model, self._begun = model or self.model, time.monotonic()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with without_link(self.log).open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "cod_lightning.engines.vllm_server.main", *self._arguments()],
                stdin=subprocess.PIPE,  # its end tells the server that we are gone
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                start_new_session=True,
            )
        atexit.register(self.stop)

    def wait(self, healthy: Callable[[], bool]) -> None:
        """Until it answers. Raises `EngineFailure` where it ended instead, took too long, or another user has its port."""
        while not (self._listens() and healthy()):
            if not self.alive:
                raise self.died()
            if time.monotonic() > self._begun + self.how.start_timeout_s:
                raise EngineFailure(
                    f"the vLLM server at {self.url} does not answer {self.how.start_timeout_s:g} s after its start "
                    f"(data.engine.local.start_timeout_s); its log {self.log} ends: {self.last_words()}"
                )
            time.sleep(0.5)

    def _listens(self) -> bool:
        """Whether this user listens at its port; another one who took it would get the key. True where the system does not say."""
        if not _SOCKETS.exists():
            return True
        rows = [line.split() for line in _SOCKETS.read_text().splitlines()[1:]]
        users = {int(row[7]) for row in rows if row[1].endswith(f":{self.port:04X}") and row[3] == _LISTENING}
        if users - {os.getuid()}:
            raise EngineFailure(f"another user of this machine listens at {self.url}, the port of a server that starts")
        return bool(users)

    @property
    def alive(self) -> bool:
        """Whether the process runs; it may still be starting."""
        return self._child is not None and self._child.poll() is None

    def last_words(self) -> str:
        """The end of its log, in one line."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        shown = [line for line in lines if _ERROR.search(line)] or lines
        return " / ".join(line.strip()[-200:] for line in shown[-_LINES_SHOWN:])

    def died(self) -> EngineFailure:
        """What to say when it is no longer there."""
        code = None if self._child is None else self._child.poll()
        return EngineFailure(
            f"the vLLM server at {self.url} ended with code {code}; its log {self.log} ends: {self.last_words()}"
        )

    def stop(self) -> None:
        """End it with its children: asked first, then made to."""
        atexit.unregister(self.stop)
        child, self._child = self._child, None
        if child is None:
            return
        for request, patience_s in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 10.0)):
            try:
                os.killpg(child.pid, request)
                child.wait(patience_s)
                break
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)  # a child of its own that outlived it
            time.sleep(0.05)
        with suppress(subprocess.TimeoutExpired):  # the system cannot end what waits for a driver
            child.wait(1.0)
        if child.stdin is not None:
            child.stdin.close()

    def _arguments(self) -> list[str]:
        how = self.how
        arguments = [
            *("--served-model-name", "policy", "--host", self.host, "--port", str(self.port), "--enable-scale-out"),
            *("--uvicorn-log-level", "warning", "--middleware", f"{KeyGuard.__module__}.{KeyGuard.__name__}"),
        ]
        options = engine_options(
            how,
            model=self.model,
            dtype=self.dtype,
            window=self.window,
            adapter_rank=self.adapter_rank,
            sleep=self.sleep,
            on_cpu=not torch.cuda.is_available(),
        )
        for name, value in options.items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                arguments.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                arguments += [f"--{flag}", str(value)]
        if how.devices:
            num_gpus = len([one for one in how.devices[self.index].split(",") if one.strip()])
            arguments += ["--tensor-parallel-size", str(max(1, num_gpus))]
        return [*arguments, *how.arguments]

    def _environment(self) -> dict[str, str]:
        own = {"VLLM_SERVER_DEV_MODE": "1", KEY: self.key}
        if Path(self.model).is_dir():
            own["HF_HUB_OFFLINE"] = "1"
        if self.adapter_rank:
            own["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
        if self.how.devices:
            own[_VISIBLE] = self.how.devices[self.index]
        usual = {"VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        kept = {name: value for name, value in os.environ.items() if name != "VLLM_ENABLE_V1_MULTIPROCESSING"}
        return usual | kept | own


def check_local(num: int, how: LocalServers) -> None:
    """Raise `ConfigError` for what cannot be started here; `num` servers, of all ranks."""
    if how.devices and len(how.devices) != num:
        expected = f"{num} entries, one for each server that data.engine.start asks for on each rank"
        raise ConfigError("data.engine.local.devices", list(how.devices), expected, "Name the GPUs of each server.")
    check_installed("VLLMServerEngine")
