"""Root-mean-square normalisation as one operation, forward and backward: on the CPU a third of the time.

transformers writes it as a handful of operations, each of which autograd takes back by itself. On a GPU each is a kernel that takes
longer to start than to run; there torch has one for all of them.
"""

import inspect
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers import PreTrainedModel


class RMSNorm(nn.Module):
    """weight * x / sqrt(mean(x ** 2) + eps), the mean in float32 over the last dimension.

    Source: Zhang, Sennrich, "Root Mean Square Layer Normalization", 2019; rounded as in transformers' Llama and Qwen models, on a
    GPU in half precision at the end alone.
    """

    def __init__(self, weight: nn.Parameter, eps: float) -> None:
        super().__init__()
        self.weight, self.variance_epsilon = weight, eps

    def forward(self, hidden: Tensor) -> Tensor:
        """Of [..., D]."""
        if hidden.device.type == "cpu" and hidden.dtype == self.weight.dtype == torch.float32:
            if not torch.is_grad_enabled():
                return (hidden * _scale(hidden, self.variance_epsilon)).mul_(self.weight)
            out: Any = _Normed.apply(hidden, self.weight, self.variance_epsilon)
            return out
        if hidden.device.type == "cuda" and hidden.dtype == self.weight.dtype:
            return torch.nn.functional.rms_norm(hidden, self.weight.shape, self.weight, self.variance_epsilon)
        x = hidden.float()
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * x.to(hidden.dtype)


def _scale(x: Tensor, eps: float) -> Tensor:
    squares = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
    return squares.div_(x.shape[-1]).add_(eps).rsqrt_()


class _Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        scale = _scale(x, eps)
        normed = x * scale
        ctx.save_for_backward(normed, scale, weight)
        return normed * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        normed, scale, weight = ctx.saved_tensors
        products = (gradient * normed).reshape(-1, len(weight))
        along = products.mv(weight).view(scale.shape).div_(len(weight))  # autocast would round what @ gives
        of_x = (gradient * weight).addcmul_(normed, along, value=-1).mul_(scale)
        return of_x, products.sum(dim=0) if ctx.needs_input_grad[1] else None, None


def use_rms_norm(model: PreTrainedModel) -> None:
    """Put it in the place of every layer that computes the same, parameters and their names kept."""
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            weight, eps = getattr(layer, "weight", None), getattr(layer, "variance_epsilon", None)
            if isinstance(layer, RMSNorm) or not isinstance(weight, nn.Parameter) or weight.ndim != 1 or eps is None:
                continue
            if len(inspect.signature(layer.forward).parameters) != 1:  # gated ones normalise a product
                continue
            own = RMSNorm(weight, eps)
            if _does_the_same(layer, own):
                setattr(parent, name, own)


@torch.no_grad()
def _does_the_same(layer: nn.Module, own: RMSNorm) -> bool:
    size = own.weight.shape[0]
    case = torch.linspace(-2.0, 3.0, 2 * size, dtype=own.weight.dtype, device=own.weight.device).view(2, size)
    return torch.allclose(layer(case), own(case), rtol=1e-5 if case.dtype == torch.float32 else 1e-2)
