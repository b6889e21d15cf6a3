"""Triton kernels of liger-kernel in the place of a model's norms and gated layers, on a GPU; of this model alone.

Log-probs of chosen tokens are computed by `objective.logprobs`, so its cross entropies have no use here. Its rotary embedding is a
function of the architecture's module, which all models of the process share, and is left as it is.
"""

import sys

import torch
from transformers import PreTrainedModel

from cod_lightning.errors import ConfigError
from cod_lightning.extras import require

_KEY = "model.policy.kernels"
_ARCHITECTURE = ".modeling_"
"""In the names of transformers' modules that have one."""
_OFF = {"rope": False, "cross_entropy": False, "fused_linear_cross_entropy": False}


def check_liger(model_type: str | None) -> None:
    """Raise `ConfigError` where this machine, or an architecture of that name, cannot have them; None asks for no architecture."""
    if not torch.cuda.is_available():
        raise ConfigError(
            _KEY, "liger", "null, since its kernels are for GPUs and this process has none", "Leave it out."
        )
    require("liger-kernel", _KEY, "liger")
    from liger_kernel.transformers.monkey_patch import (  # pyright: ignore[reportMissingImports]
        MODEL_TYPE_TO_APPLY_LIGER_FN,
    )

    if model_type is not None and model_type not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        expected = f"null, since liger-kernel has none for the architecture {model_type}"
        raise ConfigError(_KEY, "liger", expected, "Leave it out.")


def use_liger(model: PreTrainedModel) -> None:
    """Patch the layers of this model. What liger-kernel changes for all models to come is put back."""
    require("liger-kernel", _KEY, "liger")
    from liger_kernel.transformers import _apply_liger_kernel_to_instance  # pyright: ignore[reportMissingImports]

    shared = [vars(module) for name, module in list(sys.modules.items()) if _ARCHITECTURE in name]
    before = [dict(names) for names in shared]
    try:
        _apply_liger_kernel_to_instance(model=model, **_OFF)
    finally:
        for names, kept in zip(shared, before, strict=True):
            names.update(kept)
