"""What the modules share: a policy, and what of it keeps its precision when the weights are cast."""

from collections.abc import Callable
from typing import Any, Self

import lightning as L
from torch import Tensor, nn
from transformers import PreTrainedModel

from cod_lightning.models.base import Policy


class PolicyModule(L.LightningModule):
    """A LightningModule around a policy's model; the model is there after `configure_model`."""

    policy: Policy
    model: PreTrainedModel | None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves and casts, but the model's derived buffers are moved only.

        `trainer.precision=bf16-true` casts all there is, rotary frequencies included; transformers keeps those in
        float32, since at position 10,000 a frequency of three digits turns by tens of radians too much or too little.
        """
        kept = [] if self.model is None else _derived_buffers(self.model)
        super()._apply(fn, recurse)
        for module, name, before in kept:
            setattr(module, name, before.to(getattr(module, name).device))
        return self

    @property
    def _model(self) -> PreTrainedModel:
        assert self.model is not None, "configure_model() has not run"
        return self.model


def _derived_buffers(model: nn.Module) -> list[tuple[Any, str, Tensor]]:
    """Module, name and value of the floating-point buffers that no state dict holds."""
    return [
        (module, name, buffer)
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name in module._non_persistent_buffers_set and buffer.is_floating_point()
    ]
