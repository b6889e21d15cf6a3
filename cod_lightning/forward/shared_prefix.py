"""What all rows of a micro-batch begin with goes through the model once.

Rows of siblings begin alike, and those of all packs of a world with the same rules. Keys and values of that beginning are computed
for one row and attended to by all; the gradients of all rows flow back into it, so that sums are the same but for the order in
which they are rounded.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from cod_lightning.forward.last_layer import predicting, read_only_at

_PAYS = 0.1
"""Least share of a micro-batch's tokens that have to be saved: the others then attend with a mask, which takes longer."""
_ATTENDS = {"full_attention", "sliding_attention"}


def shared_prefix(token_ids: Int[Tensor, "B T"], action_mask: Bool[Tensor, "B T"], lengths: Int[Tensor, " B"]) -> int:
    """How many first tokens to compute once: none of them predicts an action token; 0 where it would not pay.

    >>> ids = torch.tensor([[5, 6, 7, 1, 2], [5, 6, 7, 3, 4]])
    >>> shared_prefix(ids, torch.tensor([[False, False, False, False, True]] * 2), torch.tensor([5, 5]))
    3
    """
    rows, width = token_ids.shape
    alike = (token_ids == token_ids[:1]).all(dim=0) & ~predicting(action_mask).any(dim=0)
    alike &= torch.arange(width, device=token_ids.device) < lengths.min() - 1
    count = int(alike.cumprod(dim=0).sum())
    return count if count * (rows - 1) >= _PAYS * rows * width else 0


def takes_prefix(model: PreTrainedModel) -> bool:
    """Whether all that a token leaves to later ones is keys and values, and whether they are there to be kept."""
    return keeps_keys_and_values(model) and not (model.training and model.is_gradient_checkpointing)


def keeps_keys_and_values(model: PreTrainedModel) -> bool:
    """Whether all layers attend to all earlier tokens, or to the last of them: none is recurrent."""
    attends = set(getattr(model.config.get_text_config(), "layer_types", None) or ()) <= _ATTENDS
    return attends and not getattr(model, "_is_stateful", False)


def prefix_cache(model: PreTrainedModel, prefix: Int[Tensor, "1 P"], rows: int) -> DynamicCache:
    """Keys and values of the prefix, for that many rows."""
    cache = DynamicCache(config=model.config)
    with read_only_at(model, torch.zeros_like(prefix, dtype=torch.bool)):
        model.base_model(input_ids=prefix, past_key_values=cache, use_cache=True)
    cache.batch_repeat_interleave(rows)
    return cache
