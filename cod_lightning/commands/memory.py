"""The memory plan of a training: made from its config, and shown."""

import math
import os
from typing import Any

import torch
from rich.console import Console
from rich.table import Column, Table

from cod_lightning.commands.trainer_settings import num_processes
from cod_lightning.datamodules import RolloutDataModule
from cod_lightning.datamodules.checks import drawn_pack
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.errors import ConfigError
from cod_lightning.models import LoRAPolicy
from cod_lightning.models.memory_plan import ALWAYS, GIB, MemoryPlan, base_bytes, plan_memory
from cod_lightning.models.sizes import ModelSizes, RunSizes, sizes_of
from cod_lightning.modules import GRPOModule
from cod_lightning.objective.logprobs import scores_bytes
from cod_lightning.objective.terms import REFERENCE
from cod_lightning.process_memory import most_resident
from cod_lightning.rollout.lengths import longest_row
from cod_lightning.terminal import Screen
from cod_lightning.training.stochastic_adamw import STEP_SLICE

_KEPT_LR = 4e-5
"""Half the distance of two neighbours of 0.02, a usual weight, in bfloat16; an update of AdamW is about as large as its rate."""


def plan_of(module: GRPOModule, data: RolloutDataModule, trainer: Any, gpu_gb: float | None = None) -> MemoryPlan:
    """The plan of a run whose policy is a `PretrainedPolicy`; `trainer` is its config.

    Where the DataModule has a tokenizer, rows and dialogues are as long as its environment's and context's are; else as the window.
    """
    policy: Any = module.policy
    available, device, on_gpu = _device(trainer, gpu_gb)
    adapter, decodes_here = isinstance(policy, LoRAPolicy), isinstance(data.engine, TransformersEngine)
    sizes = sizes_of(policy.skeleton(), *((policy.rank, policy.targets) if adapter else ()))
    engine: Any = data.engine
    precision = str(trainer.precision or "32-true")
    strategy = str(getattr(trainer.strategy, "class_path", trainer.strategy)).lower()
    shards = num_processes(trainer) if "modelparallel" in strategy else 1  # DDP's processes each hold all
    weight_bytes = 2 if "16-true" in precision or policy.dtype != torch.float32 else 4
    longest = policy.window
    if data.has_chat:
        pack = drawn_pack(data.env, data.pack_size, data.seed)
        longest = longest_row(data.env, data.context, pack, data.chat, policy.window, data.max_new_tokens)
    num_tokens = max(module.token_budget, longest)
    stochastic = module.optimizer_name == "adamw_stochastic"
    in_float32 = stochastic and weight_bytes == 2 and not adapter and num_processes(trainer) == 1
    run = RunSizes(
        weight_bytes=weight_bytes,
        activation_bytes=2 if "mixed" in precision else weight_bytes,
        autocast="mixed" in precision and shards == 1,
        four_bit=policy.four_bit,
        eight_bit_moments="8bit" in module.optimizer_name,
        float32_moments=stochastic,
        gradient_bytes=4 if in_float32 else None,
        step_bytes=16 if stochastic else 4 if module.optimizer_name == "adamw" else 0,
        step_slice=STEP_SLICE if stochastic else None,
        has_reference=REFERENCE in module.needs and not adapter,
        scorer_bytes=sum(scorer.num_weight_bytes() for scorer in module.scorers.values()),
        gradient_checkpointing=policy.gradient_checkpointing,
        num_tokens=num_tokens,
        longest_row=longest,
        shares=True,
        scores_bytes=scores_bytes(num_tokens, sizes.vocabulary),
        engine_copies_base=decodes_here and (shards > 1 or not adapter),  # no engine decodes with shares
        engine_sleeps=engine.sleeps and on_gpu,
        # an adapter's base stays as it is
        engine_weight_bytes=engine.dtype.itemsize if decodes_here and engine.dtype and not adapter else None,
        **(_cached(data, trainer, longest) if decodes_here else {}),
        engine_bytes=_engine_bytes(engine, policy, sizes, weight_bytes, available, on_gpu=on_gpu),
        num_shards=shards,
        on_gpu=on_gpu,
        own_bytes=0 if on_gpu else most_resident(),
    )
    return plan_memory(sizes, run, available, device)


def _cached(data: RolloutDataModule, trainer: Any, longest: int) -> dict[str, int]:
    """Tokens whose keys and values an engine in this process keeps, by the dialogues that there can be at a time."""
    engine: Any = data.engine
    ranks, held_out = num_processes(trainer), data.program.held_out.num_attempts
    training = max(data.packs_per_rollout * data.group_size * data.program.num_attempts, data.val_packs * held_out)
    at_end = max([training, *(suite.num_packs * held_out for suite in data.suites)])
    return {
        "num_cached_tokens": longest * min(engine.max_dialogues, math.ceil(training / ranks)),
        "num_cached_at_end": longest * min(engine.max_dialogues, math.ceil(at_end / ranks)),
        "prefill_tokens": min(engine.prefill_tokens, longest * math.ceil(training / ranks)),
    }


def _engine_bytes(
    engine: Any, policy: Any, sizes: ModelSizes, weight_bytes: int, available: float, *, on_gpu: bool
) -> int | None:
    """Weights and cache of a vLLM on this device; None where there is none."""
    how = getattr(engine, "local", engine)
    if not hasattr(how, "kv_cache_gb") or (how is not engine and (not engine.start or how.devices or not on_gpu)):
        return None
    if on_gpu and how.kv_cache_gb is None:
        return int(how.gpu_memory_utilization * available)
    size = getattr(torch, how.dtype).itemsize if how.dtype else weight_bytes
    weights = base_bytes(sizes, size, four_bit=policy.four_bit)
    weights += size * sizes.num_adapter_weights
    return int(weights + (how.kv_cache_gb or 1.0) * GIB)


def show(plan: MemoryPlan, module: Any, trainer: Any, console: Console) -> None:
    """The table, what to change where it does not fit, and where updates of bfloat16 weights are too small to survive rounding."""
    size = Column("GiB", justify="right")
    table = Table("", size, "how", "in", title=f"Memory, {plan.device}", title_justify="left")
    for item in plan.items:
        during = "" if item.during == ALWAYS else ", ".join(item.during)
        table.add_row(item.name, f"{item.size / GIB:.2f}", item.how, during)
    table.add_section()
    table.add_row("together", f"{plan.total / GIB:.2f}", f"of {plan.available / GIB:.1f}", plan.peak)
    console.print(table)
    for line in plan.advice():
        console.print(line, soft_wrap=True)
    policy: Any = module.policy
    half = policy.dtype == torch.bfloat16 or str(trainer.precision) == "bf16-true"
    if half and not policy.adapter_rank and module.optimizer_name != "adamw_stochastic" and module.lr < _KEPT_LR:
        lost = f"With model.optimizer={module.optimizer_name} most of an update at model.lr={module.lr:g} is lost when a bfloat16"
        remedy = "set model.optimizer to adamw_stochastic, or model.policy.dtype to float32."
        console.print(f"{lost} weight is rounded to the nearest: {remedy}", soft_wrap=True)


def announce(module: Any, data: Any, trainer: Any) -> MemoryPlan:
    """At the start of `fit`: show the plan of a real checkpoint, and refuse what cannot be."""
    plan = plan_of(module, data, trainer)
    if plan.impossible:
        within = f"weights, gradients and moments within {plan.available / GIB:.1f} GiB ({plan.device})"
        expected = f"{within}; they take {plan.least / GIB:.1f}"
        raise ConfigError("model.policy", module.policy.path, expected, " ".join(plan.advice()))
    data.check_with(module.policy)
    plan = plan_of(module, data, trainer)
    show(plan, module, trainer, Screen())
    return plan


def _device(trainer: Any, gpu_gb: float | None) -> tuple[float, str, bool]:
    if gpu_gb is not None:
        return gpu_gb * GIB, f"a GPU of {gpu_gb:g} GiB", True
    if torch.cuda.is_available() and trainer.accelerator != "cpu":
        properties = torch.cuda.get_device_properties(0)
        return float(properties.total_memory), properties.name, True
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")), "this machine's RAM", False
