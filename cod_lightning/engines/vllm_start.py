"""What both vLLM engines share: what vLLM is started with and asked for. And how it is started inside this process."""

import os
import random
import tempfile
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from cod_lightning.adapters import adapter_rank, has_adapter, is_four_bit
from cod_lightning.engines.base import Request, Served
from cod_lightning.engines.vllm_folder import memory_folder, write_config, write_four_bit
from cod_lightning.errors import ConfigError, EngineFailure, EngineRefused, answering
from cod_lightning.files import scratch_prefix
from cod_lightning.types import StopReason

if TYPE_CHECKING:
    from vllm.v1.engine.llm_engine import LLMEngine  # pyright: ignore[reportMissingImports]

    from cod_lightning.engines.vllm import VLLMEngine
    from cod_lightning.engines.vllm_server.process import LocalServers

_OLDEST = "0.32"
"""The first release whose `reload_weights` takes named tensors in the form that the engine hands them in."""
_INSTALL = (
    "On a GPU: pip install 'vllm>=0.32' in a fresh environment with this project. On a CPU: tests/vllm/make_venv.sh makes one. "
    "Or choose engine=TransformersEngine, or name servers that run elsewhere in data.engine.urls of VLLMServerEngine."
)
_FOUR_BIT = "vllm_bnb_plugin"
"""Where vLLM's support of bitsandbytes is since release 0.28."""
_CPU_BATCH_TOKENS = 8192
"""Tokens of a step on a CPU. Prompts are never cut there: see `engine_options`."""
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks of adapters that vLLM can make room for."""
STOPS = {"stop": StopReason.STOP, "length": StopReason.LENGTH}
_COLDEST = 0.01
"""Lowest temperature above 0; below it vLLM samples at this one and only logs that it does."""


def start(model: PreTrainedModel, how: "VLLMEngine", *, window: int, adapter_rank: int, four_bit: bool) -> "LLMEngine":
    """A running vLLM for the model's architecture, its weights still random: the first sync brings the right ones.

    A base in 4 bits is there already, byte for byte the one that is trained on.

    Args:
        model: The model.
        how: The engine's settings.
        window: Most tokens of a prompt and its response together.
        adapter_rank: Largest rank of an adapter that can be served; 0 serves none.
        four_bit: Serve the model's base in its 4 bits.
    """
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # the engine has to run in this process
    usual = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    for name, value in usual.items():
        os.environ.setdefault(name, value)  # what the person has set stays
    parent = memory_folder()
    folders = tempfile.TemporaryDirectory(prefix=scratch_prefix("start", parent), dir=parent)
    with _process_left_alone(), _class_left_alone(type(model.base_model)), folders as folder:
        from vllm.engine.arg_utils import EngineArgs  # pyright: ignore[reportMissingImports]
        from vllm.platforms import current_platform  # pyright: ignore[reportMissingImports]
        from vllm.v1.engine.llm_engine import LLMEngine  # pyright: ignore[reportMissingImports]

        on_cpu = current_platform.is_cpu()
        if on_cpu:
            _check_on_cpu(model)
            _tolerate_foreign_modules()
        (write_four_bit if four_bit else write_config)(model, Path(folder))
        with answering(_unfit, "settings that vLLM takes"):
            return LLMEngine.from_engine_args(
                EngineArgs(
                    load_format="bitsandbytes" if four_bit else "dummy",
                    seed=0,  # every request brings its own
                    device_ids=None if on_cpu else [torch.cuda.current_device()],  # the one that this rank trains on
                    **engine_options(
                        how,
                        model=folder,
                        dtype=how.precision,
                        window=window,
                        adapter_rank=adapter_rank,
                        sleep=how.sleeps,
                        on_cpu=on_cpu,
                    ),
                )
            )


def _unfit(expected: str) -> ConfigError:
    remedy = "Change what it names, or choose engine=TransformersEngine."
    return ConfigError("data.engine", "VLLMEngine", expected, remedy)


def engine_options(
    how: "VLLMEngine | LocalServers",
    *,
    model: Path | str,
    dtype: str,
    window: int,
    adapter_rank: int,
    sleep: bool,
    on_cpu: bool,
) -> dict[str, Any]:
    """vLLM's options, in this process or as a server; on a CPU whole prompts in blocks of 32 tokens.

    Blocks of 128, vLLM's default there, would cache nothing of a short window. Prompts cut into chunks crash with the seeds that
    our requests carry (vLLM 0.32: "CPU Generator does not use offset").
    """
    options: dict[str, Any] = {
        "model": str(model),
        "dtype": dtype,
        "max_model_len": window,
        "max_num_seqs": how.max_num_seqs,
        "skip_tokenizer_init": True,
        "generation_config": "vllm",  # nothing of the checkpoint's own sampling habits
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",  # after temperature and top-p: what was sampled from
        "disable_log_stats": True,
        "enforce_eager": on_cpu,  # neither compilation nor CUDA graphs
    }
    if adapter_rank:
        options |= {"enable_lora": True, "max_lora_rank": adapter_rank}
    if on_cpu or how.kv_cache_gb is not None:
        options["kv_cache_memory_bytes"] = int((how.kv_cache_gb or 1.0) * 2**30)
    if not on_cpu:
        return options | {"gpu_memory_utilization": how.gpu_memory_utilization, "enable_sleep_mode": sleep}
    batch = max(_CPU_BATCH_TOKENS, window)
    return options | {"block_size": 32, "enable_chunked_prefill": False, "max_num_batched_tokens": batch}


def sampling_fields(request: Request, stop_ids: Sequence[int]) -> dict[str, Any]:
    """vLLM's sampling parameters for token ids and their log-probs; only `stop_ids` end a turn, whatever the checkpoint's settings.

    Raises:
        EngineRefused: For a temperature that vLLM does not sample at.
    """
    if 0 < request.temperature < _COLDEST:
        raise EngineRefused(
            f"temperature {request.temperature}: between 0 and {_COLDEST} vLLM samples at {_COLDEST} and only logs it. "
            f"Take 0 (greedy) or at least {_COLDEST}."
        )
    return {
        "temperature": request.temperature,
        "top_p": 1.0,
        "max_tokens": request.max_new_tokens,
        "seed": request.noise_seed & (2**63 - 1),
        "stop_token_ids": list(stop_ids),
        "ignore_eos": True,
        "logprobs": 0,
        "detokenize": False,
    }


def room_for(rank: int) -> int:
    """The largest rank that vLLM is started for; 0 without an adapter. Raises `ConfigError` for one larger than vLLM knows."""
    if rank > _RANKS[-1]:
        expected = f"at most {_RANKS[-1]}, the largest rank that vLLM serves"
        raise ConfigError("model.policy.rank", rank, expected, "Lower it, or choose engine=TransformersEngine.")
    return next(size for size in (0, *_RANKS) if size >= rank)


def whole_sync(
    weights: Iterable[tuple[str, Tensor]], names: Collection[str], device: torch.device | str
) -> list[tuple[str, Tensor]]:
    """The weights of a sync, each on this device before the next is put together. Raises `EngineFailure` where one of those names
    is missing."""
    named = [(name, tensor.detach().to(device)) for name, tensor in weights]
    if missing := set(names) - {name for name, _ in named}:
        raise EngineFailure(f"weight sync left out {sorted(missing)}")
    return named


def check_installed(engine: str) -> None:
    """Raise `ConfigError` unless a vLLM is installed that is not too old; from package metadata alone."""
    from packaging.version import Version

    for name in ("vllm", "vllm-cpu"):
        with suppress(PackageNotFoundError):
            if Version(found := version(name)) < Version(_OLDEST):
                raise ConfigError("data.engine", f"{engine} with {name} {found}", f"{_OLDEST} or newer", _INSTALL)
            return
    raise ConfigError("data.engine", engine, "vLLM in this environment, which has none", _INSTALL)


def check_served(served: Served, engine: str, dtype: str | None) -> None:
    """Raise `ConfigError` for a model that vLLM cannot serve."""
    check_experts(served)
    room_for(served.adapter_rank)
    if not served.four_bit:
        return
    or_else = "or choose engine=TransformersEngine."
    if find_spec(_FOUR_BIT) is None:
        expected = "the package vllm-bnb-plugin beside vLLM, for a base in 4 bits"
        remedy = f"pip install --no-deps vllm-bnb-plugin, {or_else}"
        raise ConfigError("data.engine", engine, expected, remedy)
    if (computed := dtype or served.dtype) != "bfloat16":
        expected = "bfloat16, in which vLLM computes with weights of 4 bits"
        raise ConfigError("model.policy.dtype", computed, expected, f"Set it, {or_else}")


def served_of(model: nn.Module) -> Served:
    """What a model asks for once it is there. Raises `ConfigError` for one that is not transformers'."""
    if not isinstance(model, PreTrainedModel):
        expected = "a transformers model, whose architecture vLLM can look up"
        raise ConfigError("model.policy", type(model).__name__, expected, "Choose another policy.")
    rank = adapter_rank(model) if has_adapter(model) else 0
    dtype = str(model.dtype).removeprefix("torch.")
    return Served(adapter_rank=rank, four_bit=is_four_bit(model), dtype=dtype, config=model.config)


def check_experts(served: Served) -> None:
    """Raise `ConfigError` for a mixture of experts on a machine without a GPU."""
    if served.config is None or torch.cuda.is_available():
        return
    config = served.config.get_text_config()
    for key in ("num_experts", "num_local_experts", "n_routed_experts"):
        if getattr(config, key, None):
            expected = "a model without mixtures of experts: vLLM 0.32 on a CPU does not take new weights for them"
            raise ConfigError(
                "model.policy", f"{config.model_type} with {key}", expected, "Choose engine=TransformersEngine."
            )


def _check_on_cpu(model: PreTrainedModel) -> None:
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend  # pyright: ignore[reportMissingImports]

    config = model.config.get_text_config()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    sizes = CPUAttentionBackend.get_supported_head_sizes()
    if size not in sizes:
        expected = f"one of {', '.join(map(str, sizes))} for vLLM on a CPU"
        remedy = "Set hidden_size and num_heads of model.policy so, or choose engine=TransformersEngine."
        raise ConfigError("model.policy (hidden_size / num_heads)", size, expected, remedy)


def _tolerate_foreign_modules() -> None:
    """vLLM 0.32 on a CPU reads `vars` of everything that any module holds, and dies where that is no dict.

    llvmlite holds such an object, and is there as soon as something has imported numba.
    """
    from vllm.triton_utils import dispatcher  # pyright: ignore[reportMissingImports]

    def attributes(value: object) -> Mapping[str, Any]:
        found = vars(value)
        return found if isinstance(found, Mapping) else {}

    dispatcher.vars = attributes


@contextmanager
def _class_left_alone(cls: Any) -> Iterator[None]:
    """vLLM serves some families (OLMo 2, SmolLM3) by transformers' own class, and changes how it is made and called.

    Models of ours keep the class's own ways.
    """
    made, called = cls.__init__, cls.__call__
    try:
        yield
    finally:
        theirs = cls.__call__

        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return (theirs if "do_not_compile" in vars(self) else called)(self, *args, **kwargs)

        if theirs is not called:
            cls.__init__, cls.__call__ = made, call


@contextmanager
def _process_left_alone() -> Iterator[None]:
    """vLLM seeds every global generator and, on a CPU, disables `torch.set_num_threads`; training is to notice neither."""
    set_num_threads, of_numpy, of_python = torch.set_num_threads, np.random.get_state(), random.getstate()
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            torch.set_num_threads = set_num_threads
            np.random.set_state(of_numpy)
            random.setstate(of_python)
