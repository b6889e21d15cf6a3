"""A LoRA adapter inside a transformers model: which weights are its own, how the rest is called, how it is switched off.

peft puts it in place: a layer `q_proj` becomes `q_proj.base_layer` beside `q_proj.lora_A.default` and `q_proj.lora_B.default`, and
experts in two tensors become `experts.base_layer.base_layer`, with an adapter beside each `base_layer`.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cod_lightning.errors import DataError
from cod_lightning.ranks import whole

ADAPTER = "default"
"""The name that peft gives to it."""
_OWN = (".lora_A.", ".lora_B.")
_SAMPLES = 256
"""Elements of each tensor that are looked at; more would read an 8B model for seconds."""


def is_adapter(name: str) -> bool:
    """Whether a weight of that name belongs to an adapter.

    >>> is_adapter("model.layers.0.mlp.up_proj.lora_A.default.weight"), is_adapter("model.norm.weight")
    (True, False)
    """
    return any(own in name for own in _OWN)


def has_adapter(model: nn.Module) -> bool:
    """Whether the model is trained through an adapter."""
    return any(is_adapter(name) for name, _ in model.named_parameters())


def adapter_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights of the adapter by their names in the model."""
    return {name: weight for name, weight in model.named_parameters() if is_adapter(name)}


def trained_weights(model: nn.Module) -> dict[str, Tensor]:
    """What changes in training, and so what an engine has to be sent: the adapter where there is one, else everything."""
    return adapter_weights(model) or model.state_dict()


def synced_weights(model: nn.Module, *, adapter: bool) -> Iterator[tuple[str, Tensor]]:
    """What a sync hands to an engine: to one that takes an adapter the adapter, to any other all weights with it merged in.

    Where ranks share them out each is put together as it is asked for; all ranks have to ask for all of them.
    """
    if has_adapter(model) and not adapter:
        yield from plain_weights(model, merge=True)
        return
    for name, weight in trained_weights(model).items():
        yield name, whole(weight)


def adapter_scales(model: nn.Module, *, acting: bool = False) -> dict[str, float]:
    """By layer, how many times the adapter's product is added; with `acting` 0 where it is switched off now."""
    return {
        name: 0.0
        if acting and (layer.disable_adapters or ADAPTER not in layer.active_adapters)
        else float(layer.scaling[ADAPTER])
        for name, layer in _layers(model)
    }


def adapter_rank(model: Any) -> int:
    """The rank of the model's adapter."""
    return int(model.peft_config[ADAPTER].r)


@contextmanager
def without_adapter(model: Any) -> Iterator[None]:
    """The model as it was before training, for as long as the context lasts; no copy is made."""
    model.disable_adapters()
    try:
        yield
    finally:
        model.enable_adapters()


def plain_weights(model: nn.Module, *, merge: bool) -> Iterator[tuple[str, Tensor]]:
    """Every weight of the model under its name without adapters, 4-bit ones dequantised; with `merge` the adapter is added in.

    W + (alpha / rank) B A, computed in float32 and rounded once to the dtype of W (of a 4-bit weight: what it was quantised from).
    """
    layers = _layers(model) if merge else ()
    deltas = {f"{_plain(name)}.{getattr(layer, 'parameter_name', 'weight')}": layer for name, layer in layers}
    for name, weight in _stored(model):
        value = whole(dequantised(weight).detach())
        if name in deltas:
            value = (value.float() + _delta(deltas[name]).to(value.device)).to(value.dtype)
        yield name, value


def _plain(name: str) -> str:
    """The name that a weight or a layer has without adapters."""
    return name.replace(".base_layer", "")


def _stored(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters but the adapter's, tied ones under each name, and what else a checkpoint holds, such as biases of routers."""
    for name, weight in model.named_parameters(remove_duplicate=False):
        if not is_adapter(name):
            yield _plain(name), weight
    for owner, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set:
                yield _plain(f"{owner}.{name}"), buffer


def _delta(layer: Any) -> Tensor:
    """(alpha / rank) B A of a layer of peft's, or of each of its experts, in float32 and in the form of its weight."""
    one, other = (whole(pair[ADAPTER].weight.detach()).float() for pair in (layer.lora_B, layer.lora_A))
    if (experts := getattr(layer, "num_experts", 1)) > 1:  # [out, rank x experts], [experts x rank, in]
        product = one.unflatten(1, (-1, experts)).permute(2, 0, 1) @ other.unflatten(0, (experts, -1))
        return (product if layer._did_swap_in_out_features else product.mT) * layer.scaling[ADAPTER]
    product = one @ other
    return (product.T if layer.fan_in_fan_out else product) * layer.scaling[ADAPTER]


def dequantised(weight: Tensor) -> Tensor:
    """A 4-bit weight as the forward pass sees it; any other as it is."""
    state = getattr(weight, "quant_state", None)
    if state is None:
        return weight
    from bitsandbytes.functional import dequantize_4bit

    return dequantize_4bit(weight.data, state)


def stored_base(model: nn.Module) -> dict[str, Tensor]:
    """The base as it is kept, under its names without adapters: 4-bit weights as bytes, beside them what makes numbers of those."""
    return {_plain(name): weight.detach() for name, weight in model.state_dict().items() if not is_adapter(name)}


def is_four_bit(model: nn.Module) -> bool:
    """Whether weights of the model are kept in 4 bits."""
    return any(getattr(weight, "quant_state", None) is not None for weight in model.parameters())


def write_adapter(weights: dict[str, Tensor], folder: Path) -> None:
    """The weights of an adapter as peft and vLLM read them, into `adapter_model.safetensors`."""
    named = {
        f"base_model.model.{name.replace(f'.{ADAPTER}.', '.')}": weight.detach().cpu().contiguous()
        for name, weight in weights.items()
    }
    save_file(named, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def write_adapter_config(model: Any, folder: Path) -> None:
    """Rank, alpha, targets and the name of the base, as peft and vLLM read them, into `adapter_config.json`."""
    kept = model.peft_config[ADAPTER].to_dict()
    config = {key: sorted(value) if isinstance(value, set) else value for key, value in kept.items()}
    config["inference_mode"] = True
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2, default=str) + "\n", encoding="utf-8")


def share_base(model: nn.Module) -> dict[int, Any]:
    """A memo for `copy.deepcopy`, with which the copy has the very same base weights, and an adapter of its own."""
    memo: dict[int, Any] = {}
    for name, weight in model.named_parameters():
        if not is_adapter(name):
            memo[id(weight)] = weight
            if (state := getattr(weight, "quant_state", None)) is not None:
                memo[id(state)] = state
    return memo


def _layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Names and modules of the layers that have an adapter."""
    for name, module in model.named_modules():
        if isinstance(getattr(module, "lora_A", None), nn.ModuleDict):
            yield name, module


def as_float32(model: nn.Module) -> None:
    """Keep the adapter in float32 whatever the base is in: at small learning rates bfloat16 would round updates away."""
    for weight in adapter_weights(model).values():
        weight.data = weight.data.to(torch.float32)


@dataclass(frozen=True)
class BaseWeights:
    """Which weights an adapter was trained on: a checkpoint holds the adapter only, and on another base it would be nonsense."""

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


def base_weights(model: Any, name: str) -> BaseWeights:
    """Of a model whose weights lie whole in this process, with or without an adapter."""
    dtype = "nf4" if is_four_bit(model) else str(model.dtype).removeprefix("torch.")
    return BaseWeights(name, dtype, weights_digest(model, adapter=False))


def weights_digest(model: nn.Module, *, adapter: bool = True) -> str:
    """16 hexadecimal digits, those of `BaseWeights.digest`; with `adapter` over its weights too."""
    found = hashlib.sha256()
    for own, weight in model.named_parameters():
        if is_adapter(own) and not adapter:
            continue
        state = getattr(weight, "quant_state", None)
        found.update(f"{_plain(own)} {list((state or weight).shape)}".encode())
        if state is None:  # devices do not quantise to the same last bit
            found.update(_sampled(weight))
    return found.hexdigest()[:16]


def _sampled(weight: nn.Parameter) -> bytes:
    flat = weight.detach().flatten()
    at = torch.linspace(0, len(flat) - 1, min(_SAMPLES, len(flat)), dtype=torch.float64).long().to(flat.device)
    return flat[at].to("cpu", torch.float32).numpy().tobytes()
