"""The end of a forward pass: the last layer, only at positions whose hidden states are read, and from there to logits.

Whatever follows the last layer's keys and values works on each position by itself. A log-probability is wanted of a few tokens in
a row, the next token of a prompt's last position alone; at other positions the output would go unread. Of a small
model with two layers that is a third of all products, of one with thirty a fiftieth.

Most models end with the output layer. Gemma 2 bends its scores (`final_logit_softcapping`), Cohere and Granite scale them. What a
model does is read off the model: its own forward pass is run on made-up hidden states, without its layers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from cod_lightning.errors import ConfigError
from cod_lightning.forward.attention import read_from


@contextmanager
def read_only_at(model: PreTrainedModel, positions: Bool[Tensor, "B T"]) -> Iterator[None]:
    """Inside, a forward pass over [B, T] ids leaves the last hidden states at other positions unfinished: without meaning.

    Gradients are those of the whole computation, since nothing reads what is left out. What a model's last layer does not have by
    these names is computed everywhere, and so is a model that computes its activations again in the backward pass.
    """
    layers = getattr(model.base_model, "layers", None)
    is_recomputed = model.training and model.is_gradient_checkpointing
    if not isinstance(layers, nn.ModuleList) or not layers or is_recomputed or positions.shape[1] == 1:
        yield
        return
    layer = layers[-1]
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


_KNOWN = "_cod_lightning_logits"
"""Attribute of a model: factor and bound of its scores."""
_FACTORS: dict[str, Callable[[float], tuple[float, ...]]] = {
    "logit_scale": lambda value: (value,),
    "logits_scaling": lambda value: (1 / value, value),  # Granite divides, HyperCLOVA X multiplies
    "lm_head_multiplier": lambda value: (value,),
}
"""Config keys, and the factors that they may mean."""
_FAR = 50.0
"""Largest score of the case: a bound of 30 shows there."""


class BoundedScores(nn.Module):
    """bound * tanh(factor * layer(hidden) / bound), or, without a bound, factor * layer(hidden)."""

    def __init__(self, layer: nn.Module, factor: float, bound: float | None) -> None:
        super().__init__()
        self.layer, self.factor, self.bound = layer, factor, bound

    @property
    def weight(self) -> Any:
        """The output layer's."""
        return self.layer.weight

    def forward(self, hidden: Float[Tensor, "... D"]) -> Float[Tensor, "... V"]:
        scores = self.layer(hidden) * self.factor
        return scores if self.bound is None else torch.tanh(scores / self.bound) * self.bound


def output_layer(model: PreTrainedModel) -> nn.Module:
    """The layer from last hidden states to vocabulary logits, as the model itself computes them.

    Raises:
        ConfigError: Where the model makes its logits in another way.
    """
    layer = model.get_output_embeddings()
    assert layer is not None, f"{type(model).__name__} has no output layer"
    if not hasattr(model, _KNOWN):
        if (found := _read_off(model, layer)) is None:
            expected = "a model whose logits are those of its output layer, scaled or soft-capped as its config says"
            raise ConfigError("model.policy", type(model).__name__, expected, "Choose another model.")
        setattr(model, _KNOWN, found)
    factor, bound = getattr(model, _KNOWN)
    return layer if (factor, bound) == (1.0, None) else BoundedScores(layer, factor, bound)


@torch.no_grad()
def _read_off(model: PreTrainedModel, layer: nn.Module) -> tuple[float, float | None] | None:
    """Factor and bound of the model's scores; None where it makes them in another way."""
    config, weight = model.config.get_text_config(), layer.weight
    assert isinstance(weight, Tensor), f"the output layer of {type(model).__name__} has no weight"
    if weight.device.type == "meta":
        return 1.0, None
    width = weight.shape[1]
    case = torch.linspace(-2.0, 3.0, 2 * width, dtype=model.dtype, device=weight.device).view(1, 2, width)
    case *= _FAR / layer(case).abs().max().clamp_min(1e-6)
    with _hidden_states(model, layer, case):
        ids = torch.zeros((1, 2), dtype=torch.long, device=weight.device)
        expected = model(input_ids=ids, use_cache=False).logits.float()
    factors = {f for key, means in _FACTORS.items() if (value := getattr(config, key, None)) for f in means(value)}
    bounds = {None, getattr(config, "final_logit_softcapping", None)}
    for factor in (1.0, *sorted(factors - {1.0})):
        for bound in sorted(bounds, key=lambda one: one is not None):
            found = BoundedScores(layer, factor, bound)(case).float()
            if torch.allclose(found, expected, rtol=1e-5 if model.dtype == torch.float32 else 2e-2, atol=1e-4):
                return factor, bound
    return None


@contextmanager
def _hidden_states(model: PreTrainedModel, layer: nn.Module, hidden: Float[Tensor, "1 2 D"]) -> Iterator[None]:
    """Inside, these are what the output layer gets; the layers below are left out, where the model calls them as one."""
    base, own = model.base_model, vars(model.base_model).get("forward")
    base.forward = lambda *_, **__: _Made(last_hidden_state=hidden)  # pyright: ignore
    handle = layer.register_forward_pre_hook(lambda *_: (hidden,))
    try:
        yield
    finally:
        handle.remove()
        if own is None:
            del base.forward
        else:
            base.forward = own


class _Made(BaseModelOutput):
    """What a model's layers give; anything but hidden states is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)
