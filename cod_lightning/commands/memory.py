"""The memory plan of a training: made from its config, shown, and compared with what was measured."""

import os
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM

from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.engines.vllm import VLLMEngine
from cod_lightning.errors import ConfigError
from cod_lightning.models import LoRAPolicy, PretrainedPolicy
from cod_lightning.models.memory_plan import GIB, MemoryPlan, RunSizes, base_bytes, plan_memory, sizes_of
from cod_lightning.models.pretrained import read_config
from cod_lightning.objective.logprobs import scores_bytes
from cod_lightning.objective.terms import REFERENCE
from cod_lightning.terminal import Screen
from datamodules import RolloutDataModule
from modules import GRPOModule


def plan_of(module: GRPOModule, data: RolloutDataModule, trainer: Any, gpu_gb: float | None = None) -> MemoryPlan:
    """The plan of a run whose policy is a `PretrainedPolicy`; `trainer` is its config."""
    policy: Any = module.policy
    available, device, on_gpu = _device(trainer, gpu_gb)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(read_config(policy.path, "model.policy.path"))
    adapter = isinstance(policy, LoRAPolicy)
    sizes = sizes_of(model, policy.rank, policy.targets) if adapter else sizes_of(model)
    engine, precision = data.engine, str(trainer.precision or "32-true")
    weight_bytes = 2 if "16-true" in precision or policy.dtype != torch.float32 else 4
    num_tokens = max(module.token_budget, policy.window)
    engine_bytes: int | None = None
    if isinstance(engine, VLLMEngine) and on_gpu and engine.kv_cache_gb is None:
        engine_bytes = int(engine.gpu_memory_utilization * available)
    elif isinstance(engine, VLLMEngine):
        weights = base_bytes(sizes, weight_bytes, four_bit=policy.four_bit and not engine.dequantise)
        engine_bytes = int(weights + (engine.kv_cache_gb or 1.0) * GIB)
    run = RunSizes(
        weight_bytes=weight_bytes,
        activation_bytes=2 if "mixed" in precision else weight_bytes,
        autocast="mixed" in precision,
        four_bit=policy.four_bit,
        eight_bit_moments="8bit" in module.optimizer_name,
        has_reference=REFERENCE in module.needs and not adapter,
        scorer_bytes=sum(scorer.num_weight_bytes() for scorer in module.scorers.values()),
        gradient_checkpointing=policy.gradient_checkpointing,
        num_tokens=num_tokens,
        scores_bytes=scores_bytes(num_tokens, sizes.vocabulary),
        engine_copies_base=isinstance(engine, TransformersEngine) and not adapter,
        num_cached_tokens=engine.max_dialogues * policy.window if isinstance(engine, TransformersEngine) else 0,
        engine_bytes=engine_bytes,
        num_shards=_num_shards(trainer),
        on_gpu=on_gpu,
    )
    return plan_memory(sizes, run, available, device)


def show(plan: MemoryPlan, console: Console) -> None:
    """The table, and what to change where it does not fit."""
    table = Table(title=f"Memory, {plan.device}", title_justify="left")
    for name, justify in (("", "left"), ("GiB", "right"), ("how", "left")):
        table.add_column(name, justify=justify)  # pyright: ignore[reportArgumentType]
    for item in plan.items:
        table.add_row(item.name, f"{item.size / GIB:.2f}", item.how)
    table.add_section()
    table.add_row("together", f"{plan.total / GIB:.2f}", f"of {plan.available / GIB:.1f}")
    console.print(table)
    for line in plan.advice():
        console.print(line, soft_wrap=True)


def announce(module: Any, data: Any, trainer: Any) -> MemoryPlan | None:
    """At the start of `fit`: show the plan of a real checkpoint, and refuse what cannot be; None for other policies."""
    if not (isinstance(module.policy, PretrainedPolicy) and module.policy.path):
        return None
    plan = plan_of(module, data, trainer)
    if plan.impossible:
        raise ConfigError(
            "model.policy",
            module.policy.path,
            f"weights, gradients and moments within {plan.available / GIB:.1f} GiB ({plan.device}); they take "
            f"{plan.least / GIB:.1f}",
            " ".join(plan.advice()),
        )
    show(plan, Screen())
    return plan


def measured_peak() -> str:
    """What this process has held at most, for the line after a run."""
    if torch.cuda.is_available():
        return f"{torch.cuda.max_memory_allocated() / GIB:.2f} GiB of GPU memory"
    import resource

    return (
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB:.2f} GiB of RAM (torch and Python included)"
    )


def _device(trainer: Any, gpu_gb: float | None) -> tuple[float, str, bool]:
    if gpu_gb is not None:
        return gpu_gb * GIB, f"a GPU of {gpu_gb:g} GiB", True
    if torch.cuda.is_available() and trainer.accelerator != "cpu":
        properties = torch.cuda.get_device_properties(0)
        return float(properties.total_memory), properties.name, True
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")), "this machine's RAM", False


def _num_shards(trainer: Any) -> int:
    """Processes that share the weights; DDP's each hold all."""
    strategy = str(getattr(trainer.strategy, "class_path", trainer.strategy)).lower()
    devices = trainer.devices if isinstance(trainer.devices, int) and trainer.devices > 0 else 1
    return devices if "fsdp" in strategy or "modelparallel" in strategy else 1
