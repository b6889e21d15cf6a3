"""A policy whose parameters are shared out between ranks (FSDP2), and what is needed to treat it like a plain one.

With a plain model every function here does the plain thing, so that callers need not ask.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from transformers import PreTrainedModel

from cod_lightning.adapters import adapter_weights, has_adapter
from cod_lightning.ranks import rank


def shard(model: PreTrainedModel, mesh: DeviceMesh, compute: torch.dtype | None = None) -> None:
    """Share the parameters out: each decoder layer is gathered for its own forward and backward, the rest with the root.

    All ranks get rank 0's weights; of a model with an adapter, whose frozen base all have read from the same files, the adapter's.
    Weights in 4 bits stay whole on every rank: bitsandbytes cannot cut them. `compute` is the precision that parameters are
    gathered and multiplied in, by default the one that they are kept in. Gradients are summed over ranks in float32.
    """
    adapted = has_adapter(model)
    device = torch.device(mesh.device_type, torch.cuda.current_device()) if mesh.device_type == "cuda" else "cpu"
    for weight in adapter_weights(model).values():
        values = weight.data.to(device)
        dist.broadcast(values, 0)
        weight.data.copy_(values)
    sends = rank() == 0 and not adapted
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()} if sends else {}
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32)
    layers = set(model._no_split_modules or ())
    kept = {weight for weight in model.parameters() if getattr(weight, "quant_state", None) is not None}
    for module in list(model.modules()):
        if type(module).__name__ in layers:
            fully_shard(module, mesh=mesh, mp_policy=policy, ignored_params=kept)
    fully_shard(model, mesh=mesh, mp_policy=policy, ignored_params=kept)
    if not adapted:
        options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(model, weights, options=options)
    whole: Any = model
    whole.inside = lambda function: function()
    register_fsdp_forward_method(model, "inside")


def load_whole(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give the model all of its weights, plain ones that every rank has."""
    if isinstance(model, FSDPModule):
        set_model_state_dict(model, dict(weights), options=StateDictOptions(full_state_dict=True))
    else:
        model.load_state_dict(weights)
