"""AdamW in full precision or with moments of 8 bits, by the name that the config gives."""

from collections.abc import Iterable
from typing import Any, Literal

from torch import nn
from torch.optim import AdamW, Optimizer

from cod_lightning.models.extras import require

OptimizerName = Literal["adamw", "adamw_8bit", "paged_adamw", "paged_adamw_8bit"]
"""`adamw` is torch's, the others those of bitsandbytes. Paged ones keep their state in memory that moves to the
CPU and back where the GPU is full; on a CPU they are as the others."""


def make_optimizer(name: OptimizerName, parameters: Iterable[nn.Parameter], **options: Any) -> Optimizer:
    """The optimizer of those parameters that are trained; `options` are lr, betas and weight_decay."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if name == "adamw":
        return AdamW(trained, **options)
    from bitsandbytes.optim.adamw import AdamW8bit, PagedAdamW, PagedAdamW8bit

    kinds = {"adamw_8bit": AdamW8bit, "paged_adamw": PagedAdamW, "paged_adamw_8bit": PagedAdamW8bit}
    return kinds[name](trained, **options)


def check_optimizer(name: OptimizerName) -> None:
    """Raise `ConfigError` if the package that has it is not there."""
    if name != "adamw":
        require("bitsandbytes", "model.optimizer", name)
