"""When vLLM can serve a base in the very 4 bits that it is trained in."""

from importlib.util import find_spec

from transformers import PreTrainedModel

from cod_lightning.adapters import adapter_rank, has_adapter, is_four_bit
from cod_lightning.engines.base import Served
from cod_lightning.errors import ConfigError

_PLUGIN = "vllm_bnb_plugin"
"""Where vLLM's support of bitsandbytes is since release 0.28."""
_OR_NOT = "set data.engine.dequantise, which takes the memory of the whole model, or choose engine=TransformersEngine."


def check_four_bit(served: Served, engine: str) -> None:
    """Raise `ConfigError` where it cannot."""
    if not served.four_bit:
        return
    if find_spec(_PLUGIN) is None:
        expected = "the package vllm-bnb-plugin beside vLLM, for a base in 4 bits"
        remedy = f"pip install --no-deps vllm-bnb-plugin, or {_OR_NOT}"
        raise ConfigError("data.engine", engine, expected, remedy)
    if served.dtype != "bfloat16":
        expected = "bfloat16, in which vLLM computes with weights of 4 bits"
        raise ConfigError("model.policy.dtype", served.dtype, expected, f"Set it, {_OR_NOT}")


def served_of(model: PreTrainedModel) -> Served:
    """What a model asks for once it is there."""
    rank = adapter_rank(model) if has_adapter(model) else 0
    dtype = str(model.dtype).removeprefix("torch.")
    return Served(adapter_rank=rank, four_bit=is_four_bit(model), dtype=dtype, config=model.config)
