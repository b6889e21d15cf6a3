"""The last layer, only at positions whose hidden states are read: its queries, the attention's output and the network after it.

Whatever follows the last layer's keys and values works on each position by itself. A log-probability is wanted of a few tokens in
a row, the next token of a prompt's last position alone; at other positions the output would go unread. Of a small
model with two layers that is a third of all products, of one with thirty a fiftieth.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from transformers import PreTrainedModel

from cod_lightning.forward.attention import read_from


@contextmanager
def read_only_at(model: PreTrainedModel, positions: Bool[Tensor, "B T"]) -> Iterator[None]:
    """Inside, a forward pass over [B, T] ids leaves the last hidden states at other positions unfinished: without meaning.

    Gradients are those of the whole computation, since nothing reads what is left out. What a model's last layer does not have by
    these names is computed everywhere, and so is a model that computes its activations again in the backward pass.
    """
    layer = _last_layer(model)
    if layer is None or positions.shape[1] == 1:
        yield
        return
    where = positions.flatten().nonzero().squeeze(1)
    attention = getattr(layer, "self_attn", None)

    def pick(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden = args[0]
        return (hidden.flatten(0, 1).index_select(0, where)[None], *args[1:])

    def put_back(_: nn.Module, args: tuple[Any, ...], out: Any) -> Any:
        if isinstance(out, tuple):  # a mixture of experts tells its router's scores, too
            return (put_back(_, args, out[0]), *out[1:])
        whole = out.new_zeros(positions.numel(), out.shape[-1])
        return whole.index_copy(0, where, out[0]).unflatten(0, positions.shape)

    each = [getattr(layer, "mlp", None), getattr(attention, "o_proj", None)]
    networks = [network for network in each if isinstance(network, nn.Module)]
    handles = [network.register_forward_pre_hook(pick) for network in networks]
    handles += [network.register_forward_hook(put_back) for network in networks]
    reading = read_from(attention, positions) if isinstance(attention, nn.Module) else nullcontext()
    try:
        with reading:
            yield
    finally:
        for handle in handles:
            handle.remove()


def predicting(action_mask: Bool[Tensor, "B T"]) -> Bool[Tensor, "B T"]:
    """Where the next token is an action token.

    >>> predicting(torch.tensor([[False, False, True, False]]))
    tensor([[False,  True, False, False]])
    """
    return torch.nn.functional.pad(action_mask[:, 1:], (0, 1))


def _last_layer(model: PreTrainedModel) -> nn.Module | None:
    layers = getattr(model.base_model, "layers", None)
    if not isinstance(layers, nn.ModuleList) or not len(layers):
        return None
    return None if model.training and model.is_gradient_checkpointing else layers[-1]
