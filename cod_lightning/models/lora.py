"""A frozen checkpoint with a low-rank adapter, which alone is trained (LoRA, arXiv 2106.09685)."""

import logging
from collections.abc import Sequence
from typing import Any, Literal

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from cod_lightning.adapters import ADAPTER, as_float32, base_weights, plain_weights
from cod_lightning.errors import ConfigError
from cod_lightning.extras import require
from cod_lightning.models.pretrained import PretrainedPolicy
from cod_lightning.ranges import Count


class LoRAPolicy(PretrainedPolicy):
    """A checkpoint whose weights stay as they are, with an adapter W + (alpha / rank) B A on its linear layers.

    The adapter is kept in float32 and has no dropout, so that the engine's log-probs are those of training. Checkpoints hold the
    adapter only.

    Args:
        path: Folder, hub name, GGUF file or package of the base, for example Qwen/Qwen3-8B; null: the warm start's.
        rank: Rank of the adapter.
        alpha: The adapter counts alpha / rank times.
        targets: Names of the layers that get one, for example [q_proj, v_proj]; null: every linear layer but the output layer.
        dtype: Precision of the base, which is not trained: float16 suits it, too.
        settings: Those of `PretrainedPolicy`.
    """

    packages: tuple[str, ...] = ("peft",)
    """What the model is made with beside transformers."""

    def __init__(
        self,
        path: str | None = None,
        rank: Count = 32,
        alpha: Count = 64,
        targets: list[str] | None = None,
        dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16",
        **settings: Any,
    ) -> None:
        super().__init__(path or "", **settings)
        self.dtype = getattr(torch, dtype)
        self.rank = self.adapter_rank = rank
        self.alpha, self.targets = alpha, targets
        self.waits_for_warm_start = not self.path

    def check_machine(self) -> None:
        """Raise `ConfigError` where a package is missing that the model is made with; a plan, which makes none, asks for none."""
        for package in self.packages:
            require(package, "model.policy", type(self).__name__)

    def tokenizer(self, words: Sequence[str]) -> PreTrainedTokenizerFast:
        if not self.path:
            raise ConfigError(
                "model.policy.path",
                "null",
                "a folder, hub name or GGUF file",
                "Name one, or set warm_start.policy, over which a warm start trains it, as in experiment/qlora_smoke.",
            )
        return super().tokenizer(words)

    def model(self, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """The frozen base with a new adapter, which changes nothing yet (B is 0)."""
        self.check_machine()
        # peft loads bitsandbytes, which names a package that it can do without
        logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
        from peft import LoraConfig

        model = super().model(tokenizer)
        self.base = base_weights(model, self.path)
        from cod_lightning.models.gguf.cache import checkpoint_folder

        _check_targets(model, self.targets)
        config = LoraConfig(
            r=self.rank,
            lora_alpha=self.alpha,
            lora_dropout=0.0,
            bias="none",
            target_modules=self.targets or "all-linear",
            base_model_name_or_path=checkpoint_folder(self.path, "model.policy.path"),
        )
        model.add_adapter(config, ADAPTER)
        as_float32(model)
        if self.gradient_checkpointing:
            model.enable_input_require_grads()  # else a checkpointed block has no input with a gradient
        return model


def merged(model: PreTrainedModel, dtype: torch.dtype | None = None) -> PreTrainedModel:
    """A plain model of the same architecture with the adapter added to its weights, those of 4 bits dequantised.

    `dtype` is what it is rounded to; null: what the base is in (of a 4-bit base: what it was quantised from).
    """
    config = type(model.config).from_dict(model.config.to_dict())
    config.__dict__.pop("quantization_config", None)
    weights = {name: weight.to("cpu") for name, weight in plain_weights(model, merge=True)}
    with torch.device("meta"):
        plain = type(model)(config)
    plain.load_state_dict(weights, assign=True)
    plain.tie_weights()
    for name, buffer in model.named_buffers():
        owner, _, own = name.replace(".base_layer", "").rpartition(".")
        if f"{owner}.{own}" not in weights:  # rotary frequencies, which no state dict holds
            plain.get_submodule(owner).register_buffer(own, buffer.to("cpu"), persistent=False)
    return (plain.to(dtype) if dtype else plain).requires_grad_(True)  # pyright: ignore


def _check_targets(model: PreTrainedModel, targets: list[str] | None) -> None:
    tied = model.get_input_embeddings().weight
    linear = (name for name, m in model.named_modules() if hasattr(m, "in_features") and m.weight is not tied)
    layers = sorted({name.rpartition(".")[2] for name in linear})
    for target in targets or ():
        if target not in layers:
            expected = f"of {', '.join(layers)}, the linear layers of {type(model).__name__} but its embeddings"
            raise ConfigError("model.policy.targets", target, expected, "Name one of them, or leave it null.")
