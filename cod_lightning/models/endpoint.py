"""A policy whose weights are somewhere else: behind a chat endpoint. Here it has only a tokenizer, to count by."""

import copy
from collections.abc import Sequence
from typing import NoReturn

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from cod_lightning.byte_tokenizer import byte_tokenizer
from cod_lightning.models.base import Policy
from cod_lightning.models.pretrained import read_tokenizer
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
    counted in this tokenizer; `data.max_new_tokens` is sent to the endpoint, which counts in its own.

    Args:
        tokenizer_path: Folder or hub name of the endpoint's tokenizer; null counts bytes, about 4 for a token of English.
        window: Most tokens (by default: bytes) of a prompt and its response together. A dialogue that outgrows it is cut off.
    """

    has_weights = False

    def __init__(self, tokenizer_path: str | None = None, window: Count = 100_000) -> None:
        self.tokenizer_path, self.window = tokenizer_path, window

    def tokenizer(self, words: Sequence[str]) -> PreTrainedTokenizerFast:
        """The named tokenizer, else bytes, whatever the words."""
        if self.tokenizer_path is None:
            return byte_tokenizer()
        return read_tokenizer(self.tokenizer_path, "model.policy.tokenizer_path")

    def model(self, tokenizer: PreTrainedTokenizerFast) -> EndpointModel:
        return EndpointModel(tokenizer)
