"""Building a policy: its tokenizer and its model."""

from typing import TYPE_CHECKING

from cod_lightning.lazy import lazily

if TYPE_CHECKING:
    from cod_lightning.models.base import Policy as Policy
    from cod_lightning.models.endpoint import EndpointPolicy as EndpointPolicy
    from cod_lightning.models.lora import LoRAPolicy as LoRAPolicy
    from cod_lightning.models.pretrained import PretrainedPolicy as PretrainedPolicy
    from cod_lightning.models.qlora import QLoRAPolicy as QLoRAPolicy
    from cod_lightning.models.sentences import SentencePolicy as SentencePolicy
    from cod_lightning.models.tiny import TinyPolicy as TinyPolicy

__getattr__ = lazily(__name__, __file__)
