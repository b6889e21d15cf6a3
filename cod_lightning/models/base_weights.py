"""Which weights an adapter was trained on: a checkpoint holds the adapter only, and on another base it would be nonsense."""

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from cod_lightning.adapters import is_adapter, is_four_bit
from cod_lightning.errors import DataError

_SAMPLES = 256
"""Elements of each tensor that are looked at; more would read an 8B model for seconds."""


@dataclass(frozen=True)
class BaseWeights:
    """The weights under an adapter."""

    name: str
    """Folder or hub name that they came from."""
    dtype: str
    """How they are kept, by torch's name, or nf4."""
    digest: str
    """SHA-256 over names, shapes and up to 256 evenly spaced elements of each tensor that is not in 4 bits."""

    def check(self, kept: Any, path: object) -> None:
        """Raise `DataError` unless `kept`, of the checkpoint at `path`, is this base. The name may differ: folders move."""
        if not isinstance(kept, dict):
            raise DataError(
                f"{path} holds the weights of a whole model, not of an adapter. Choose PretrainedPolicy, or another checkpoint."
            )
        if (self.dtype, self.digest) == (kept["dtype"], kept["digest"]):
            return
        what = "precision" if self.digest == kept["digest"] else "weights"
        raise DataError(
            f"{path} holds an adapter for {kept['name']} in {kept['dtype']}; the base here, {self.name} in {self.dtype}, has other "
            f"{what}. Set model.policy.path and model.policy.dtype as in the run that wrote it."
        )


def base_weights(model: PreTrainedModel, name: str) -> BaseWeights:
    """Of a model whose weights lie whole in this process, with or without an adapter."""
    dtype = "nf4" if is_four_bit(model) else str(model.dtype).removeprefix("torch.")
    return BaseWeights(name, dtype, weights_digest(model, adapter=False))


def weights_digest(model: PreTrainedModel, *, adapter: bool = True) -> str:
    """16 hexadecimal digits, those of `BaseWeights.digest`; with `adapter` over its weights too."""
    found = hashlib.sha256()
    for own, weight in model.named_parameters():
        if is_adapter(own) and not adapter:
            continue
        found.update(f"{own.replace('.base_layer.', '.')} {_shape(weight)}".encode())
        if getattr(weight, "quant_state", None) is None:  # devices do not quantise to the same last bit
            found.update(_sampled(weight))
    return found.hexdigest()[:16]


def _shape(weight: nn.Parameter) -> list[int]:
    state = getattr(weight, "quant_state", None)
    return list(weight.shape if state is None else state.shape)


def _sampled(weight: nn.Parameter) -> bytes:
    flat = weight.detach().flatten()
    at = torch.linspace(0, len(flat) - 1, min(_SAMPLES, len(flat)), dtype=torch.float64).long().to(flat.device)
    return flat[at].to("cpu", torch.float32).numpy().tobytes()
