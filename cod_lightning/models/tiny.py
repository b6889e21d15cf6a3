"""A policy of a fraction of a million parameters, made from scratch: it learns the compact protocol on a laptop in minutes.

Qwen3's architecture, so that every code path is that of a real checkpoint; a word-level vocabulary in which each fact is
one token, because with facts of several tokens the look-up circuit did not form in millions of tokens of training.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from cod_lightning.errors import ConfigError, DataError
from cod_lightning.models.base import Policy
from cod_lightning.ranges import Count

PAD, UNKNOWN, END = "<pad>", "<unk>", "<end>"
_ROLES = ("<system>", "<user>", "<assistant>")
_SPECIAL = (PAD, UNKNOWN, END, *_ROLES)
_SIZES = {
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "intermediate_size": "intermediate_size",
}
"""Sizes of the weights, by their names here and in a Hugging Face config."""
ROPE_THETA = 10_000.0
_TEMPLATE = (
    "{% for message in messages %}{{ '<' + message['role'] + '> ' + message['content'] + ' ' }}"
    "{% if message['role'] == 'assistant' %}{{ '<end> ' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


class FreshWeights(ABC):
    """How a policy begins whose weights are made here, beyond random numbers; chosen with `model.policy.start`."""

    rope_theta: float = ROPE_THETA
    """Base of the rotary frequencies."""
    trains_embeddings: bool = True

    @abstractmethod
    def check(self, hidden_size: int, num_layers: int, num_heads: int, num_kv_heads: int) -> None:
        """Raise `ConfigError` for sizes that have no room for it."""

    @abstractmethod
    def write(self, model: Any) -> None:
        """Overwrite the random weights of a Qwen3 model; what is drawn comes from torch's generator."""


class TinyPolicy(Policy):
    """Qwen3 from scratch over the words of the compact protocol.

    Args:
        hidden_size: Width of the residual stream; a multiple of `num_heads`.
        num_layers: Transformer blocks.
        num_heads: Query heads.
        num_kv_heads: Key and value heads; divides `num_heads`.
        intermediate_size: Width of the feed-forward layer.
        window: Most tokens of a prompt and its response together.
        weights: Folder in Hugging Face form to start from (a warm start writes one); its sizes count where those here are the
            defaults. None starts from random numbers.
        start: What weights from random numbers begin as, such as `InductionHeads`, a copier from context; null: random numbers.
    """

    def __init__(
        self,
        hidden_size: Count = 96,
        num_layers: Count = 3,
        num_heads: Count = 4,
        num_kv_heads: Count = 2,
        intermediate_size: Count = 256,
        window: Count = 96,
        weights: str | None = None,
        start: FreshWeights | None = None,
    ) -> None:
        if hidden_size % num_heads or (hidden_size // num_heads) % 2:
            nearest = 2 * num_heads * max(1, round(hidden_size / (2 * num_heads)))
            expected = f"an even multiple of num_heads={num_heads}"
            raise ConfigError("model.policy.hidden_size", hidden_size, expected, f"Set it to {nearest}.")
        if num_heads % num_kv_heads:
            expected = f"a divisor of num_heads={num_heads}"
            raise ConfigError("model.policy.num_kv_heads", num_kv_heads, expected, "Set it to 1.")
        self.hidden_size, self.num_layers, self.intermediate_size = hidden_size, num_layers, intermediate_size
        self.num_heads, self.num_kv_heads = num_heads, num_kv_heads
        self.window, self.weights, self.start = window, weights, start
        if start is not None:
            start.check(hidden_size, num_layers, num_heads, num_kv_heads)

    def tokenizer(self, words: Sequence[str]) -> PreTrainedTokenizerFast:
        """One token a word, plus the roles; words outside the vocabulary become `<unk>`."""
        if not words:
            expected = "a world and a context with protocol=compact"
            remedy = "Set data.env.protocol and data.context.protocol, or choose model.policy=SentencePolicy."
            raise ConfigError("model.policy", "TinyPolicy", expected, remedy)
        vocabulary = [*_SPECIAL, *dict.fromkeys(words)]
        backend = Tokenizer(WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=UNKNOWN))
        backend.pre_tokenizer = WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=backend,
            pad_token=PAD,
            unk_token=UNKNOWN,
            eos_token=END,
            additional_special_tokens=list(_ROLES),
            clean_up_tokenization_spaces=False,
        )
        tokenizer.chat_template = _TEMPLATE
        return tokenizer

    def model(self, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """The model with weights from `weights`, or random ones of standard deviation 0.5 / sqrt(hidden_size)."""
        model = self._random(tokenizer) if self.weights is None else self._load(Path(self.weights), tokenizer)
        model.get_input_embeddings().requires_grad_(self.start is None or self.start.trains_embeddings)
        return model.train()

    def _random(self, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        rope_theta = ROPE_THETA if self.start is None else self.start.rope_theta
        rotary: Any = {"rope_type": "default", "rope_theta": rope_theta}
        special: dict[str, Any] = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
        config = Qwen3Config(
            vocab_size=len(tokenizer),
            **{theirs: getattr(self, own) for own, theirs in _SIZES.items()},
            head_dim=self.hidden_size // self.num_heads,
            max_position_embeddings=self.window,
            initializer_range=0.5 * self.hidden_size**-0.5,
            tie_word_embeddings=True,
            **special,
            bos_token_id=None,
            attention_dropout=0.0,
            rope_parameters=rotary,
        )
        model = Qwen3ForCausalLM._from_config(config, attn_implementation="sdpa", dtype=torch.float32)
        if self.start is not None:
            self.start.write(model)
        return model

    def _load(self, folder: Path, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        if not (folder / "config.json").is_file():
            raise DataError(
                f"model.policy.weights is {folder}; expected a Hugging Face folder with config.json. Check the path."
            )
        from cod_lightning.models.pretrained import read_model

        model = read_model(str(folder), "model.policy.weights", Qwen3ForCausalLM, dtype=torch.float32)
        for key, name in _SIZES.items():
            own, theirs = getattr(self, key), getattr(model.config, name)
            if own not in (theirs, signature(TinyPolicy).parameters[key].default):
                expected = f"{theirs}, as the weights in {folder} have it"
                raise ConfigError(f"model.policy.{key}", own, expected, "Leave it out, or train such weights.")
        kept = folder / "tokenizer.json"
        words = Tokenizer.from_file(str(kept)).get_vocab() if kept.is_file() else None
        if model.config.vocab_size != len(tokenizer) or words not in (None, tokenizer.get_vocab()):
            raise DataError(
                f"model.policy.weights is {folder}; its vocabulary has {model.config.vocab_size} words, and those of this "
                f"environment and context are {len(tokenizer)} others. Use weights that were trained with both."
            )
        return model
