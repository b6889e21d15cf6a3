"""`plan`: what a training would hold in memory, against what a device has; nothing is loaded. `fit` shows it at its start."""

import os
from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch.cli import LightningArgumentParser
from rich.console import Console
from rich.table import Table
from transformers import AutoModelForCausalLM

from cod_lightning.commands.config_files import expand
from cod_lightning.commands.train import TrainCLI, quieten, start
from cod_lightning.engines.transformers import TransformersEngine
from cod_lightning.engines.vllm import VLLMEngine
from cod_lightning.errors import ConfigError
from cod_lightning.models import LoRAPolicy, PretrainedPolicy
from cod_lightning.models.memory_plan import GIB, MemoryPlan, ModelSizes, RunSizes, base_bytes, plan_memory, sizes_of
from cod_lightning.models.pretrained import read_config
from cod_lightning.objective.logprobs import scores_bytes
from cod_lightning.objective.terms import REFERENCE
from cod_lightning.terminal import Screen
from datamodules import RolloutDataModule
from modules import GRPOModule


class PlanCLI(TrainCLI):
    """`TrainCLI` that builds nothing and looks at what would be."""

    command = "plan"

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """The device."""
        super().add_arguments_to_parser(parser)
        parser.add_argument(
            "--gpu_gb", type=float | None, default=None, help="Memory of the GPU in GiB; null: of the device here."
        )
        parser.add_argument("--ckpt_path", type=str | None, default=None, help="Of `fit`, whose configs have it.")
        parser.add_argument("--weights_only", type=bool | None, default=None, help="Of `fit`, whose configs have it.")

    def before_instantiate_classes(self) -> None:
        """The Trainer of a GPU that is not here would refuse to be built."""
        self.asked_trainer = self.config.trainer.clone()
        for key, value in {"accelerator": "cpu", "strategy": "auto", "devices": 1, "precision": None}.items():
            setattr(self.config.trainer, key, value)
        super().before_instantiate_classes()

    def after_instantiate_classes(self) -> None:
        """No warm start."""


def run(argv: Sequence[str]) -> int:
    """Print the plan; 1 where it does not fit."""
    quieten()
    cli = start(PlanCLI, GRPOModule, RolloutDataModule, expand(argv).argv, execute=False)
    policy = cli.model.policy
    if not (isinstance(policy, PretrainedPolicy) and policy.path):
        expected = "a policy from a folder or the hub, whose size is worth a plan"
        raise ConfigError("model.policy", type(policy).__name__, expected, "Choose model=pretrained, lora or qlora.")
    if (given := cli.config.gpu_gb) is not None and not given > 0:
        raise ConfigError("--gpu_gb", given, "above 0", "24 is a common one.")
    plan = plan_of(cli.model, cli.datamodule, cli.asked_trainer, given)
    show(plan, Screen())
    return 0 if plan.fits else 1


def plan_of(module: GRPOModule, data: RolloutDataModule, trainer: Any, gpu_gb: float | None = None) -> MemoryPlan:
    """The plan of a run whose policy is a `PretrainedPolicy`; `trainer` is its config."""
    available, device, on_gpu = _device(trainer, gpu_gb)
    policy: Any = module.policy
    sizes = _sizes(policy)
    return plan_memory(sizes, _run_sizes(module, data, trainer, sizes, available, on_gpu=on_gpu), available, device)


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


def _sizes(policy: PretrainedPolicy) -> ModelSizes:
    config = read_config(policy.path, "model.policy.path")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    if isinstance(policy, LoRAPolicy):
        return sizes_of(model, policy.rank, policy.targets)
    return sizes_of(model)


def _run_sizes(
    module: GRPOModule, data: RolloutDataModule, trainer: Any, sizes: ModelSizes, available: float, *, on_gpu: bool
) -> RunSizes:
    policy, engine, precision = module.policy, data.engine, str(trainer.precision or "32-true")
    assert isinstance(policy, PretrainedPolicy)
    weight_bytes = 2 if "16-true" in precision or policy.dtype != torch.float32 else 4
    autocast, four_bit = "mixed" in precision, policy.four_bit
    num_tokens = max(module.token_budget, policy.window)
    adapter = isinstance(policy, LoRAPolicy)
    cached = engine.max_dialogues * policy.window if isinstance(engine, TransformersEngine) else 0
    return RunSizes(
        weight_bytes=weight_bytes,
        activation_bytes=2 if autocast else weight_bytes,
        autocast=autocast,
        four_bit=four_bit,
        eight_bit_moments="8bit" in module.optimizer_name,
        has_reference=REFERENCE in module.needs and not adapter,
        scorer_bytes=sum(scorer.num_weight_bytes() for scorer in module.scorers.values()),
        gradient_checkpointing=policy.gradient_checkpointing,
        num_tokens=num_tokens,
        scores_bytes=scores_bytes(num_tokens, sizes.vocabulary),
        engine_copies_base=isinstance(engine, TransformersEngine) and not adapter,
        num_cached_tokens=cached,
        engine_bytes=_vllm_bytes(engine, sizes, weight_bytes, available, four_bit=four_bit, on_gpu=on_gpu)
        if isinstance(engine, VLLMEngine)
        else None,
        num_shards=_num_shards(trainer),
        on_gpu=on_gpu,
    )


def _vllm_bytes(
    engine: VLLMEngine, sizes: ModelSizes, weight_bytes: int, available: float, *, four_bit: bool, on_gpu: bool
) -> int:
    """Its share of a GPU, else its own weights and its cache."""
    if on_gpu and engine.kv_cache_gb is None:
        return int(engine.gpu_memory_utilization * available)
    weights = base_bytes(sizes, weight_bytes, four_bit=four_bit and not engine.dequantise)
    return int(weights + (engine.kv_cache_gb or 1.0) * GIB)


def _num_shards(trainer: Any) -> int:
    """Processes that share the weights; DDP's each hold all."""
    strategy = str(getattr(trainer.strategy, "class_path", trainer.strategy)).lower()
    devices = trainer.devices if isinstance(trainer.devices, int) and trainer.devices > 0 else 1
    return devices if "fsdp" in strategy or "modelparallel" in strategy else 1
