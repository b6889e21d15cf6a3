"""Rows one at a time, each over a cache of the model's own: slow, and right where the past is more than keys and values.

Recurrent layers (Qwen3-Next, Qwen3.5) leave a state that cannot be cut, and some models attend by code of their own (GPT-OSS).
`forward/packed.py` serves neither; vLLM serves most of them faster.
"""

import copy

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import Cache, PreTrainedModel

from cod_lightning.errors import EngineFailure
from cod_lightning.forward.packed import Rows


class OwnCaches:
    """A cache of the model's own for every slot."""

    takes_beginnings = False
    """Whether a dialogue can go on from a part of what another was fed."""

    def __init__(self) -> None:
        self.of_slot: dict[int, Cache] = {}

    def copy(self, source: np.ndarray, target: np.ndarray, num_columns: int) -> None:
        """Let each target slot have all that its source has been fed."""
        found = [copy.deepcopy(self.of_slot[slot]) for slot in source.tolist()]
        self.of_slot |= dict(zip(target.tolist(), found, strict=True))


class OneByOne:
    """A model that is fed rows one after the other."""

    most_further = 2
    """As `PackedForward` has it."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    def new_cache(self, num_slots: int, num_columns: int | None) -> OwnCaches:
        return OwnCaches()

    def __call__(self, rows: Rows, cache: OwnCaches) -> Float[Tensor, "b D"]:
        """Hidden states after each row's last new id. Raises `EngineFailure` for a model that keeps no cache."""
        hidden = []
        for row in range(len(rows.slots)):
            one = rows[row : row + 1]
            slot, start = int(one.slots[0]), int(one.starts[0])
            out = self.model.base_model(
                input_ids=torch.from_numpy(one.ids).to(self.model.device)[None],
                past_key_values=cache.of_slot[slot] if start else None,
                use_cache=True,
            )
            if out.get("past_key_values") is None:
                raise EngineFailure(f"{type(self.model).__name__} keeps no cache; choose engine=VLLMEngine")
            cache.of_slot[slot] = out.past_key_values
            hidden.append(out.last_hidden_state[0, -1])
        return torch.stack(hidden)
