"""A policy whose parameters are shared out between ranks (FSDP2), and what is needed to treat it like a plain one.

With a plain model every function here does the plain thing, so that callers need not ask.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MethodType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from cod_lightning.ranks import rank

T = TypeVar("T")


def shard(model: PreTrainedModel, mesh: DeviceMesh, compute: torch.dtype | None = None) -> None:
    """Share the parameters out: each decoder layer is gathered for its own forward and backward, the rest with the root.

    All ranks get rank 0's weights. `compute` is the precision that parameters are gathered and multiplied in, by default the
    one that they are kept in. Gradients are summed over ranks in float32.
    """
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()} if rank() == 0 else {}
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32)
    layers = set(model._no_split_modules or ())
    for module in list(model.modules()):
        if type(module).__name__ in layers:
            fully_shard(module, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, weights, options=options)
    whole: Any = model
    whole.inside = MethodType(_call, model)
    register_fsdp_forward_method(model, "inside")


def inside(model: nn.Module, function: Callable[[], T]) -> T:
    """Call the function as if it were the model's forward pass: what the root holds (embeddings, output layer) is whole in it.

    What it returns may be differentiated. Every rank of a sharded model has to call it, each as often as the others.
    """
    return model.inside(function) if isinstance(model, FSDPModule) else function()  # pyright: ignore


def whole_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The state dict's names and tensors, each put together as it is asked for; all ranks have to ask for all of them."""
    for name, tensor in model.state_dict().items():
        yield name, tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def load_whole(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Give the model plain weights that every rank has; names that are missing keep theirs, as tied ones do."""
    if isinstance(model, FSDPModule):
        set_model_state_dict(model, dict(weights), options=StateDictOptions(full_state_dict=True, strict=False))
    else:
        model.load_state_dict(weights, strict=False)


def _call(model: PreTrainedModel, function: Callable[[], T]) -> T:
    return function()
