"""A model's weights as checkpoints on the hub have them, which is what vLLM reads.

transformers keeps the experts of a mixture in one tensor; in checkpoints each expert has its own, under names of older code.
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import PrefixChange, revert_weight_conversion

_READS_INPUT_EMBEDDINGS = {"Gemma2ForCausalLM", "Gemma3nForCausalLM"}
"""Models whose output layer is the input embeddings in vLLM, without a name of its own."""


class CheckpointForm:
    """Renames and cuts weights of this model; keeps none of them."""

    def __init__(self, model: PreTrainedModel) -> None:
        known = getattr(model, "_weight_conversions", None)
        if known is None:
            known = get_model_conversion_mapping(model, add_legacy=False)
        self.config = model.config
        self._weight_conversions: list[Any] = [one for one in known if not isinstance(one, PrefixChange)]
        self._left_out = "lm_head.weight" if type(model).__name__ in _READS_INPUT_EMBEDDINGS else None

    def __call__(self, named: Iterable[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
        """All weights of the model in the form of checkpoints."""
        weights = {name: tensor.detach() for name, tensor in named if name != self._left_out}
        if self._weight_conversions:
            weights = revert_weight_conversion(self, weights)  # pyright: ignore[reportArgumentType]
        return list(weights.items())
