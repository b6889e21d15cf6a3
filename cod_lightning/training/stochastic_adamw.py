"""AdamW for weights in bfloat16, which rounds to a neighbour by chance, so that small updates arrive on average.

At a learning rate of 1e-6 an update is a fraction of a bfloat16 step, and rounding to the nearest drops it. Rounded up with the
probability of what is cut off, a weight is right in expectation, without a float32 copy (Gupta et al., arXiv 1502.02551).
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch.optim import Optimizer

from cod_lightning.seeds import derive_seed

STEP_SLICE = 2**24
"""Weights that are updated at a time, which bounds the memory of float32 copies."""
_LOW, _GOLDEN = 0xFFFF, -1640531527
"""The bits of a float32 that bfloat16 cuts off; 2**32 by the golden ratio, as an int32."""
_MOMENTS = ("exp_avg", "exp_avg_sq")


class StochasticAdamW(Optimizer):
    """`torch.optim.AdamW` with moments in float32; weights in bfloat16 are rounded stochastically, others as ever.

    The chance is a hash of seed, step, parameter and place in the parameter. So it depends neither on the number of ranks, nor on
    how a parameter is shared out between them, and a run that is resumed goes on with the same.

    Args:
        params: Parameters, plain or sharded by FSDP2 along their first dimension.
        seed: Of the rounding.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-6,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        eps: float = 1e-8,
        seed: int = 0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "seed": seed})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        number = 0
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, group, number)
                number += 1
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, which rounds moments to the precision of their parameter; these stay in float32."""
        super().load_state_dict(state_dict)
        names = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        weights = chain.from_iterable(group["params"] for group in self.param_groups)
        for name, weight in zip(names, weights, strict=True):
            if kept := state_dict["state"].get(name):
                for key in _MOMENTS:
                    self.state[weight][key] = kept[key].to(device=weight.device, dtype=torch.float32)

    def _update(self, weight: Tensor, group: dict[str, Any], number: int) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = torch.tensor(0.0, dtype=torch.float32)  # bfloat16, the default of bf16-true, counts to 256
            for key in _MOMENTS:
                state[key] = torch.zeros_like(weight, dtype=torch.float32)
        state["step"] += 1
        step, (beta1, beta2) = int(state["step"]), group["betas"]
        whole_lr = group["lr"] / (1 - beta1**step)
        whole_v = (1 - beta2**step) ** 0.5
        keys = [_int32(derive_seed("rounding", group["seed"], step, number, part)) for part in ("a", "b")]
        first = _first_index(weight)
        for own, grad, m, v, start in _slices(weight, weight.grad, *(state[key] for key in _MOMENTS)):
            grad = grad.float()
            m.lerp_(grad, 1 - beta1)
            v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            new = own.float()  # the weights themselves where they are in float32
            new.mul_(1 - group["lr"] * group["weight_decay"])
            new.addcdiv_(m, v.sqrt().div_(whole_v).add_(group["eps"]), value=-whole_lr)
            if own.dtype == torch.bfloat16:
                own.copy_(rounded(new, noise(first + start, len(new), keys, new.device)))
            elif new is not own:
                own.copy_(new)


def rounded(values: Float[Tensor, " n"], chance: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Values in float32 rounded to what bfloat16 has, away from zero with the probability of what is cut off.

    `chance` is uniform in [0, 2**16). What bfloat16 has stays, as do infinities and NaN.

    >>> third = torch.full((3,), 1 + 1 / 384)  # a third of the step from 1 to 1 + 1 / 128
    >>> rounded(third, torch.tensor([0, 40_000, 50_000], dtype=torch.int32))
    tensor([1.0000, 1.0000, 1.0078])
    """
    bits = values.view(torch.int32)
    up = ((bits + chance) & ~_LOW).view(torch.float32)
    return torch.where(values.isfinite(), up, values)


def noise(first: int, number: int, keys: list[int], device: torch.device) -> Int[Tensor, " n"]:
    """Uniform in [0, 2**16) for so many places from `first` on: two rounds of a 32-bit mixer (lowbias32), each with a key."""
    found = torch.arange(first, first + number, dtype=torch.int64, device=device).to(torch.int32).mul_(_GOLDEN)
    for key in keys:
        found.bitwise_xor_(key)
        for shift, factor in ((16, 0x7FEB352D), (15, _int32(0x846CA68B)), (16, 1)):
            found.bitwise_xor_((found >> shift).bitwise_and_((1 << (32 - shift)) - 1)).mul_(factor)
    return found.bitwise_and_(_LOW)


def _slices(*tensors: Tensor | None) -> Iterator[tuple[Any, ...]]:
    """Equally long flat parts of each tensor that this rank holds, and the index at which they begin."""
    whole = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
    parts = zip(*(tensor.view(-1).split(STEP_SLICE) for tensor in whole), strict=True)  # pyright: ignore
    for index, part in enumerate(parts):
        yield *part, index * STEP_SLICE


def _first_index(weight: Tensor) -> int:
    """Flat index, in the whole parameter, of the first element that this rank holds."""
    if not isinstance(weight, DTensor):
        return 0
    (placement,) = weight.placements
    if not isinstance(placement, Shard):
        return 0
    assert placement.dim == 0, f"sharded along dimension {placement.dim}"
    rows = -(-weight.shape[0] // weight.device_mesh.size())
    at = weight.device_mesh.get_local_rank() * rows
    return at * (weight.numel() // weight.shape[0])


def _int32(value: int) -> int:
    """The low 32 bits as a signed integer."""
    return (value + 2**31) % 2**32 - 2**31
