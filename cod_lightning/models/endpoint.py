"""A policy whose weights are somewhere else: behind a chat endpoint. Here it has only a tokenizer, to count by."""

import copy
from collections.abc import Sequence
from typing import NoReturn

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from cod_lightning.byte_tokenizer import byte_tokenizer
from cod_lightning.models.base import Policy
from cod_lightning.ranges import Count


class EndpointModel(PreTrainedModel):
    """A model without parameters: all that it can do is spell a text in the policy's tokens."""

    config_class = PreTrainedConfig

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        super().__init__(PreTrainedConfig())
        self._tokenizer = copy.deepcopy(tokenizer)  # to split special tokens once is to split them ever after

    def spell(self, text: str) -> tuple[int, ...]:
        """Token ids of the text; a special token that is spelled in it counts as the letters that it is."""
        return tuple(self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    def forward(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError("the model is behind an endpoint; ask the engine")


class EndpointPolicy(Policy):
    """A chat model behind an endpoint, to be evaluated and deployed with `OpenAIEngine`; it cannot be trained.

    Prompts and responses are sent as text. Their lengths (the window, rewards of length, token counts of a transcript) are
    counted in bytes, about 4 for a token of English; `data.max_new_tokens` is sent to the endpoint, which counts in its tokens.

    Args:
        window: Most bytes of a prompt and its response together. A dialogue that outgrows it is cut off.
    """

    has_weights = False

    def __init__(self, window: Count = 100_000) -> None:
        self.window = window

    def tokenizer(self, words: Sequence[str]) -> PreTrainedTokenizerFast:
        """Bytes, whatever the words."""
        return byte_tokenizer()

    def model(self, tokenizer: PreTrainedTokenizerFast) -> EndpointModel:
        return EndpointModel(tokenizer)
