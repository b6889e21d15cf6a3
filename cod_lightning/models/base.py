"""The contract of a policy: how its tokenizer and its model are made. Heavy objects are built on request, not in `__init__`."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast

from cod_lightning.adapters import BaseWeights


class Policy(ABC):
    """A causal language model with a chat template, named by YAML with `model.policy.class_path`."""

    window: int
    """Most tokens of a prompt and its response together."""
    has_weights: bool = True
    """False for a model that is somewhere else: it can be evaluated and deployed, not trained."""

    base: BaseWeights | None = None
    """What an adapter is on, once the model is made; None where all weights are trained."""
    adapter_rank: int = 0
    """Of the adapter that is trained; 0 where all weights are."""
    four_bit: bool = False
    """Whether the frozen base is kept in 4 bits."""
    dtype: torch.dtype = torch.float32
    """Of the model's weights, those of 4 bits and an adapter's apart."""
    reads_sentences: bool = False
    """Whether its tokenizer is made of the sentences of world and context."""
    waits_for_warm_start: bool = False
    """Whether there is no tokenizer before the warm start has run."""

    @property
    def config(self) -> PreTrainedConfig | None:
        """Of its model; None where that is not known before the model is made."""
        return None

    @abstractmethod
    def tokenizer(self, words: Sequence[str]) -> PreTrainedTokenizerFast:
        """The tokenizer; `words` are those of the world's and the context's compact protocol, if they speak it; or their sentences,
        for a policy that reads those."""

    @abstractmethod
    def model(self, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """The model, in training mode, on the CPU; Lightning moves it."""

    def check_machine(self) -> None:
        """Raise `ConfigError` for what this machine lacks to train it."""
