"""Token ids in, token ids and log-probs out. An engine is imported when it is asked for; none needs the packages of another."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cod_lightning.engines.base import Engine as Engine
    from cod_lightning.engines.openai import OpenAIEngine as OpenAIEngine
    from cod_lightning.engines.scripted import ScriptedEngine as ScriptedEngine
    from cod_lightning.engines.transformers import TransformersEngine as TransformersEngine
    from cod_lightning.engines.vllm import VLLMEngine as VLLMEngine
    from cod_lightning.engines.vllm_server.engine import VLLMServerEngine as VLLMServerEngine

_MODULES = {
    "Engine": "base",
    "OpenAIEngine": "openai",
    "ScriptedEngine": "scripted",
    "TransformersEngine": "transformers",
    "VLLMEngine": "vllm",
    "VLLMServerEngine": "vllm_server.engine",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
