"""A checkpoint in 4 bits with an adapter in float32 (QLoRA, arXiv 2305.14314): an 8B class model in about 6 GB."""

from typing import Any, Literal

from transformers import BitsAndBytesConfig, PreTrainedModel, PreTrainedTokenizerFast

from cod_lightning.models.lora import LoRAPolicy


class QLoRAPolicy(LoRAPolicy):
    """`LoRAPolicy` over linear layers in NF4 with double quantisation: 4.13 bits a weight.

    Embeddings, norms and output layer are in `dtype`. Quantised while it is read, on a GPU or a CPU; a forward pass dequantises
    each layer to `dtype`.

    Args:
        path: Folder, hub name, GGUF file or package of the base, for example Qwen/Qwen3-8B; null: the warm start's.
        dtype: Precision of what is not in 4 bits, and of the computation.
        settings: Those of `LoRAPolicy`.
    """

    four_bit = True
    packages = ("bitsandbytes", "peft")  # the extra of the first one installs both

    def __init__(
        self, path: str | None = None, *, dtype: Literal["float32", "bfloat16"] = "bfloat16", **settings: Any
    ) -> None:
        super().__init__(path, dtype=dtype, **settings)

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
        """The quantised base with a new adapter, safe to train after an evaluation.

        The kernel of 4-bit layers for AVX512-BF16 is switched off: it repacks the weights in the first forward pass in eval mode,
        and every backward pass after that loses gradient (cosine 0.3 with the right one) while the loss looks normal
        (bitsandbytes 0.50).
        """
        from bitsandbytes.nn.modules import Linear4bit

        model = super().model(tokenizer)
        for module in model.modules():
            if isinstance(module, Linear4bit):
                module.support_avx512bf16_for_cpu = False
        return model
