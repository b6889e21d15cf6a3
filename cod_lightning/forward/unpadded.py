"""Training rows of unequal length one after the other, [1, T], so that nothing is computed for padding.

A layer works on each token by itself; only attention looks at rows. Where a model attends by `forward/attention.py`, queries, keys
and values are put into a rectangle as wide as the longest row, for attention alone: its kernel is that of padded rows, and no mask
is [T, T]. Flash and flex attention keep rows apart by themselves, by positions that begin again at 0 and by where rows end
(`cu_seq_lens_q` and the like, as transformers' `FlashAttentionKwargs` has them).
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from cod_lightning.forward.attention import ROWS, is_grouped
from cod_lightning.forward.shared_prefix import keeps_keys_and_values

_PAYS = 0.02
"""Least share of padding that is worth leaving out: into the rectangle and out again takes about a hundredth of a layer's time
(calculated, for 8 billion parameters)."""
_KNOWN = "_cod_lightning_unpadded"
"""Attribute of a model: whether it takes such rows."""
_APART = ("flash", "flex")
"""In the names of attentions that keep rows apart."""
_ANY = torch.ones((1, 1, 1, 1), dtype=torch.bool)
"""A mask that transformers hands on as it is; attention in a rectangle makes its own."""


class Unpadded:
    """Of B right-padded rows the tokens, and where each of them is."""

    def __init__(self, lengths: Int[Tensor, " B"], width: int) -> None:
        self.lengths, self.width = lengths, width
        self.inside: Bool[Tensor, "B W"] = torch.arange(width, device=lengths.device) < lengths[:, None]
        self._where = self.inside.nonzero(as_tuple=True)
        self.places: Int[Tensor, " T"] = self._where[0] * width + self._where[1]
        self._masks: dict[tuple[int, int | None], Tensor] = {}

    @property
    def pays(self) -> bool:
        """Whether enough of the rectangle is padding."""
        return self.inside.numel() - len(self.places) >= _PAYS * self.inside.numel()

    def joined(self, values: Tensor) -> Tensor:
        """[B, W, ...] without padding: [1, T, ...]."""
        return values.flatten(0, 1).index_select(0, self.places)[None]

    def apart(self, values: Tensor) -> Tensor:
        """[1, T, ...] with 0 as padding: [B, W, ...], which is no view, since FSDP2 hangs a hook on what a forward pass returns."""
        return values.new_zeros(*self.inside.shape, *values.shape[2:]).index_put(self._where, values[0])

    def inputs(self, model: PreTrainedModel, start: int) -> dict[str, Any]:
        """What the model's layers get beside the ids; the first of each row has this position."""
        columns = torch.arange(self.width, device=self.places.device).expand(self.inside.shape)
        more: dict[str, Any] = {"position_ids": self.joined(columns) + start}
        if is_grouped(model):
            return more | {"attention_mask": _ANY.to(self.places.device), ROWS: self}
        ends = torch.nn.functional.pad(self.lengths.cumsum(0), (1, 0)).int()
        more |= {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends}
        return more | {"max_length_q": self.width, "max_length_k": self.width}

    def attended(
        self,
        attend: Callable[[Tensor, Tensor, Tensor, Tensor | None], Float[Tensor, "B W heads v"]],
        query: Float[Tensor, "1 heads T d"],
        key: Float[Tensor, "1 kv P_and_T d"],
        value: Float[Tensor, "1 kv P_and_T v"],
        window: int | None,
    ) -> Float[Tensor, "1 T heads v"]:
        """`attend` in the rectangle. Keys and values may begin with P columns before the rows, which all of them see."""
        before = key.shape[2] - len(self.places)
        keys, values = (self._behind(states, before) for states in (key, value))
        return self.joined(attend(self._behind(query, 0), keys, values, self._mask(before, window)))

    def _behind(self, states: Float[Tensor, "1 h P_and_T d"], before: int) -> Float[Tensor, "B h P_and_W d"]:
        """Each row behind the first columns."""
        rows = self.apart(states[:, :, before:].transpose(1, 2)).transpose(1, 2)
        if not before:
            return rows
        return torch.cat((states[:, :, :before].expand(len(rows), -1, -1, -1), rows), dim=2)

    def _mask(self, before: int, window: int | None) -> Bool[Tensor, "1 1 W P_and_W"] | None:
        """Which columns a query sees: its own and the ones before it, of those the last `window`; None for a causal square."""
        columns = before + self.width
        window = None if window is None or window >= columns else window
        if not before and window is None:
            return None
        if (before, window) not in self._masks:
            seen = torch.ones((self.width, columns), dtype=torch.bool, device=self.places.device).tril(before)
            self._masks[before, window] = seen if window is None else seen.triu(before - window + 1)
        return self._masks[before, window][None, None]


def takes_unpadded(
    model: PreTrainedModel,
    logprobs: Callable[[Int[Tensor, "B T"], Bool[Tensor, "B T"], Unpadded | None], Float[Tensor, "B T"]],
) -> bool:
    """Whether rows go through this model without padding; asked once, of a case.

    On a CPU rows stay padded, since they take no less time without (`tests/benchmarks/unpadded.py`). Elsewhere, and
    with flash or flex attention, the model has to give the same `logprobs` of ids and action mask either way: recurrent layers and
    those that do not hand on what they get give others.
    """
    if not hasattr(model, _KNOWN):
        setattr(model, _KNOWN, _may(model) and _does_the_same(model, logprobs))
    return getattr(model, _KNOWN)


def _may(model: PreTrainedModel) -> bool:
    if is_grouped(model):
        return model.device.type != "cpu" and keeps_keys_and_values(model)
    return any(name in str(model.config._attn_implementation) for name in _APART)


@torch.no_grad()
def _does_the_same(model: PreTrainedModel, logprobs: Callable[..., Tensor]) -> bool:
    lengths = torch.tensor([1, 7, 5], device=model.device)  # what the first row leaves behind would show in the others
    ids = torch.arange(1, 22, device=model.device).view(3, 7) * 7919 % model.config.get_text_config().vocab_size
    rows = Unpadded(lengths, 7)
    mask = rows.inside.clone()
    mask[:, 0] = False
    exact = model.dtype == torch.float32 and not torch.is_autocast_enabled(model.device.type)
    near = 1e-5 if exact else 2e-2  # of half precision one log-prob says little, all of them enough
    try:
        found = logprobs(ids, mask, rows)
    except (IndexError, RuntimeError, TypeError, ValueError):  # layers that do not take, or hand on, what they get
        return False
    expected = logprobs(ids, mask, None)
    return bool((found - expected).norm() <= near * expected.norm())
