"""A checkpoint in 4 bits with an adapter in float32 (QLoRA, arXiv 2305.14314): an 8B class model in about 6 GB."""

from typing import Any, Literal

from transformers import BitsAndBytesConfig, PreTrainedModel, PreTrainedTokenizerFast

from cod_lightning.errors import ConfigError
from cod_lightning.models.extras import require
from cod_lightning.models.lora import LoRAPolicy


class QLoRAPolicy(LoRAPolicy):
    """`LoRAPolicy` over linear layers in NF4 with double quantisation: 4.13 bits a weight.

    Embeddings, norms and output layer are in `dtype`. Quantised while it is read, on a GPU or a CPU; a forward pass dequantises
    each layer to `dtype`.

    Args:
        path: Folder or hub name of the base, for example Qwen/Qwen3-8B; null: the warm start's.
        rank: Rank of the adapter.
        alpha: The adapter counts alpha / rank times.
        targets: Names of the layers that get one, for example [q_proj, v_proj]; null: every linear layer but the output layer.
        dtype: Precision of what is not in 4 bits, and of the computation.
        window: Most tokens of a prompt and its response together; at most what the model was made for.
        gradient_checkpointing: Recompute activations in the backward pass: less memory, about a third more time.
    """

    four_bit = True

    def __init__(
        self,
        path: str | None = None,
        rank: int = 32,
        alpha: int = 64,
        targets: list[str] | None = None,
        dtype: Literal["float32", "bfloat16"] = "bfloat16",
        window: int = 12_000,
        gradient_checkpointing: bool = False,
    ) -> None:
        super().__init__(path, rank, alpha, targets, dtype, window, gradient_checkpointing)
        require("bitsandbytes", "model.policy", type(self).__name__)

    def load_options(self) -> dict[str, Any]:
        return {
            "quantization_config": BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=self.dtype,
            )
        }

    def model(self, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
        """The quantised base with a new adapter, safe to train after an evaluation."""
        model = super().model(tokenizer)
        if _four_bit_layers(model) == 0:
            raise ConfigError(
                "model.policy.path", self.path, "a model with linear layers to quantise", "Choose model=lora."
            )
        return model


def _four_bit_layers(model: PreTrainedModel) -> int:
    """Their number. On the way their kernel for AVX512-BF16 is switched off.

    It repacks the weights in the first forward pass in eval mode, and every backward pass after that loses gradient (cosine
    0.3 with the right one) while the loss looks normal (bitsandbytes 0.50).
    """
    from bitsandbytes.nn.modules import Linear4bit

    layers: list[Any] = [module for module in model.modules() if isinstance(module, Linear4bit)]
    for layer in layers:
        layer.support_avx512bf16_for_cpu = False
    return len(layers)
