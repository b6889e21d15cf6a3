"""What the modules share: a policy, and what of it keeps its precision when the weights are cast."""

from collections.abc import Callable
from typing import Any, Self

import lightning as L
from torch import Tensor, nn
from transformers import PreTrainedModel

from cod_lightning.adapters import adapter_weights, has_adapter, is_adapter
from cod_lightning.errors import DataError
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

    @property
    def strict_loading(self) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """A checkpoint of an adapter has no other weights."""
        return self.model is None or not has_adapter(self.model)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Of a model with an adapter, the adapter alone, and what it is on."""
        if self.policy.base is not None:
            weights = checkpoint["state_dict"]
            checkpoint["state_dict"] = {n: w for n, w in weights.items() if not n.startswith("model.") or is_adapter(n)}
            checkpoint["base"] = self.policy.base.saved()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Refuse an adapter of another base, or of other layers."""
        if self.policy.base is None:
            return
        self.policy.base.check(checkpoint.get("base"), "ckpt_path")
        kept = {name for name in checkpoint["state_dict"] if is_adapter(name)}
        if kept and kept != {f"model.{name}" for name in adapter_weights(self._model)}:
            raise DataError(
                "ckpt_path holds an adapter of other layers than model.policy.targets names. Use the config of its own run."
            )


def _derived_buffers(model: nn.Module) -> list[tuple[Any, str, Tensor]]:
    """Module, name and value of the floating-point buffers that no state dict holds."""
    return [
        (module, name, buffer)
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name in module._non_persistent_buffers_set and buffer.is_floating_point()
    ]
