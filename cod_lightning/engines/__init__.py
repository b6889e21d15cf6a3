"""Token ids in, token ids and log-probs out. An engine is imported when it is asked for; none needs the packages of another."""

from typing import TYPE_CHECKING

from cod_lightning.lazy import lazily

if TYPE_CHECKING:
    from cod_lightning.engines.base import Engine as Engine
    from cod_lightning.engines.openai import OpenAIEngine as OpenAIEngine
    from cod_lightning.engines.scripted import ScriptedEngine as ScriptedEngine
    from cod_lightning.engines.transformers import TransformersEngine as TransformersEngine
    from cod_lightning.engines.vllm import VLLMEngine as VLLMEngine
    from cod_lightning.engines.vllm_server.engine import VLLMServerEngine as VLLMServerEngine

__getattr__ = lazily(__name__, __file__)
