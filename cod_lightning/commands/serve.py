"""The vLLM servers that a config's training samples with, on this machine, until they are no longer needed."""

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from cod_lightning.clients.access import key_of
from cod_lightning.commands.parser import Options
from cod_lightning.commands.train import built
from cod_lightning.datamodules.checks import asked_of
from cod_lightning.engines.vllm_folder import WeightFolder
from cod_lightning.engines.vllm_server.engine import VLLMServerEngine
from cod_lightning.engines.vllm_server.fleet import Server, start_all
from cod_lightning.engines.vllm_server.process import check_local
from cod_lightning.errors import ConfigError, Stopped
from cod_lightning.models import LoRAPolicy, PretrainedPolicy
from cod_lightning.models.gguf.cache import checkpoint_folder
from cod_lightning.ranges import Count

_LOOK_S = 1.0
_MOST_STARTS = 5
"""Of one server within `_WITHIN_S`."""
_WITHIN_S = 600.0
_OPTIONS: Options = {
    "host": (str, "127.0.0.1", "Address to listen at; 0.0.0.0: all of this machine's."),
    "port": (int, 8000, "Of the first server; the others have those that follow."),
    "num_servers": (Count, 1, "Servers on this machine."),
    "gpus_per_server": (Count, 1, "GPUs that one server is spread over; they are handed out in order."),
    "logs": (str, ".", "Folder for vllm_server_N.log."),
}


def run(argv: Sequence[str]) -> int:
    """Start them, start those again that die, and end them with this process or its parent, however those end."""
    parent = os.getppid()
    cli = built("serve", _OPTIONS, argv)
    options, engine, policy = cli.config, cli.datamodule.engine, cli.model.policy
    key = _check(options, engine, policy)
    signal.signal(signal.SIGTERM, Stopped.at_once)
    with ExitStack() as held:
        model = _model(policy, cli, held)
        each, visible = options.gpus_per_server, os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = visible.split(",") if visible else [str(i) for i in range(options.num_servers * each)]
        devices = tuple(",".join(gpus[i * each : (i + 1) * each]) for i in range(options.num_servers))
        engine.local, engine.log_folder = replace(engine.local, devices=devices), Path(options.logs)
        served = (model, asked_of(policy), policy.window, key)
        servers = [
            engine.local_server(i, *served, host=options.host, port=options.port + i)
            for i in range(options.num_servers)
        ]
        start_all(servers)
        for server in servers:
            print(f"serving {policy.window} tokens at {server.url}", flush=True)
        _watch(servers, parent)
    return 0


def _check(options: Any, engine: Any, policy: Any) -> str:
    """The key that the servers ask for. Raises `ConfigError` for what cannot be started here."""
    if not isinstance(engine, VLLMServerEngine):
        raise ConfigError("data.engine", type(engine).__name__, "VLLMServerEngine", "Choose engine=VLLMServerEngine.")
    if num_gpus := torch.cuda.device_count():
        each = options.gpus_per_server
        if options.num_servers * each > num_gpus:
            expected, asked = f"at most the {num_gpus} GPUs that are here", f"{options.num_servers} times {each}"
            raise ConfigError("--num_servers times --gpus_per_server", asked, expected, "Lower one of them.")
    if isinstance(policy, LoRAPolicy) and not policy.path:
        remedy = "Name the folder of the base: warm_start --trainer.default_root_dir writes one."
        raise ConfigError("model.policy.path", "null", "the base of the adapter that is served", remedy)
    key = key_of(engine.api_key_variable, "data.engine.api_key_variable")
    if not key:
        expected = "a key in this environment variable, which the training sends"
        remedy = f"export {engine.api_key_variable}=$(openssl rand -hex 32) here, and the same for the training."
        raise ConfigError("data.engine.api_key_variable", engine.api_key_variable, expected, remedy)
    check_local(options.num_servers, replace(engine.local, devices=()))
    engine.check_started(asked_of(policy))
    return key


def _model(policy: Any, cli: Any, held: ExitStack) -> Path | str:
    """What a server is started from: the policy's own folder or name, or else a folder written for it, until `held` ends."""
    if isinstance(policy, PretrainedPolicy) and not policy.four_bit:
        return checkpoint_folder(policy.path, "model.policy.path")
    model = policy.model(policy.tokenizer(cli.datamodule.words_for(policy)))
    folder = held.enter_context(closing(WeightFolder()))
    if isinstance(policy, LoRAPolicy):
        return folder.write_base(model)
    return folder.write(model, model.state_dict().items(), "start")


def _watch(servers: Sequence[Server], parent: int) -> None:
    """Start again what has died, while the parent lives; a training brings it the weights. Raises `EngineFailure` for one that dies
    again and again."""
    processes: list[Any] = [server.process for server in servers]
    starts: list[list[float]] = [[] for _ in servers]
    try:
        while os.getppid() == parent:
            for process, at in zip(processes, starts, strict=True):
                if process.alive:
                    continue
                now = time.monotonic()
                at[:] = [*(one for one in at if now - one < _WITHIN_S), now]
                if len(at) > _MOST_STARTS:
                    raise process.died()
                print(f"{process.died()}; it is started again", file=sys.stderr, flush=True)
                process.start()
            time.sleep(_LOOK_S)
    finally:
        for process in processes:
            process.stop()
