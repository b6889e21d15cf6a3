"""The engine that decodes with a transformers model in this process."""

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

import torch
from msgspec import structs
from torch import Tensor, nn
from transformers import PreTrainedModel

from cod_lightning.adapters import adapter_scales, adapter_weights, has_adapter, share_base
from cod_lightning.engines.base import NO_MODEL, Completion, Engine, Request
from cod_lightning.errors import EngineFailure
from cod_lightning.forward.rms_norm import use_rms_norm
from cod_lightning.ranges import Count

if TYPE_CHECKING:
    from cod_lightning.engines.decoder import Decoder


class TransformersEngine(Engine):
    """Decodes from its own plain copy of a causal language model, never through sharded or wrapped modules.

    Of a model with an adapter the copy has its own adapter over the same base weights, 4-bit ones too: no second base takes
    memory, and nothing is merged or rounded, so log-probs are those of the training forward.

    Args:
        max_dialogues: Dialogues that hold a cache slot at a time; further ones wait for a free slot. Bounds memory.
        prefill_tokens: New prompt tokens of one forward pass; larger joins are split, short prompts first.
        dtype: What its own copy of whole weights is rounded to, such as bfloat16 beside a training in bf16-mixed; null: as they are
            trained. An adapter's base is never copied, and stays as it is.
    """

    takes_adapters = True

    def __init__(
        self,
        max_dialogues: Count = 512,
        prefill_tokens: Count = 8192,
        dtype: Literal["bfloat16", "float32"] | None = None,
    ) -> None:
        self.max_dialogues, self.prefill_tokens = max_dialogues, prefill_tokens
        self.dtype: torch.dtype | None = dtype and getattr(torch, dtype)
        self.decoder: "Decoder | None" = None

    def bind(self, model: nn.Module, stop_ids: Iterable[int], window: int | None = None) -> None:
        """Take a plain copy of the model's architecture and weights; `stop_ids` end a turn."""
        from cod_lightning.engines.decoder import Decoder  # a config is checked and planned without

        assert isinstance(model, PreTrainedModel), f"{type(model).__name__} is not a transformers model"
        memo = share_base(model) if has_adapter(model) else {}
        own = copy.deepcopy(model, memo).eval().requires_grad_(False)
        if self.dtype is not None and not has_adapter(model):
            for weight in own.parameters():
                weight.data = weight.data.to(self.dtype)  # rotary frequencies, which are buffers, keep their digits
        use_rms_norm(own)
        self.decoder = Decoder(own, frozenset(stop_ids), self.max_dialogues, self.prefill_tokens, window)
        self.precision = str(own.dtype).removeprefix("torch.")

    def update_weights(self, weights: Iterable[tuple[str, Tensor]], policy_version: int) -> None:
        """Copy weights by name; every parameter must be there, in its form. Refused while turns are in flight.

        The copy goes to where the weights come from: of a model that ranks share out it was made on the CPU.
        """
        decoder = self._bound()
        if live := len(decoder.dialogues):
            raise EngineFailure(f"{live} dialogues are live; weights change only between rollouts")
        own, missing = self._tensors(), self._synced()
        with torch.no_grad():
            for name, tensor in weights:
                if tensor.device != decoder.model.device:
                    self.decoder = decoder = decoder.on(tensor.device)
                    own = self._tensors()
                if (held := own.get(name)) is None or _kind(held) != _kind(tensor):
                    here = "no such weight" if held is None else _form(held)
                    raise EngineFailure(
                        f"weight sync {policy_version} brought {name} as {_form(tensor)}; the engine holds {here}"
                    )
                held.copy_(tensor)
                missing.discard(name)
        if missing:
            raise EngineFailure(f"weight sync left out {sorted(missing)}")
        decoder.weights_changed()
        self.policy_version = policy_version

    def held(self) -> dict[str, Tensor]:
        """All parameters and buffers of the model that decodes, those of its adapter included."""
        return self._tensors()

    def _synced(self) -> set[str]:
        """Names of what a sync brings: the adapter alone, where there is one; else what a state dict holds, tied weights once."""
        model = self._bound().model
        once = dict(model.named_parameters()) | dict(model.named_buffers())
        return set(adapter_weights(model) or once.keys() & model.state_dict().keys())

    def acting_scales(self) -> dict[str, float]:
        """Of the adapter in the model that samples."""
        return adapter_scales(self._bound().model, acting=True)

    async def generate(self, request: Request) -> Completion:
        return structs.replace(await self._bound().sample(request), policy_version=self.policy_version)

    def release(self, dialogue: str) -> None:
        if self.decoder is not None:
            self.decoder.release(dialogue)

    def _tensors(self) -> dict[str, Tensor]:
        model = self._bound().model
        return dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())

    def _bound(self) -> "Decoder":
        if self.decoder is None:
            raise EngineFailure(NO_MODEL)
        return self.decoder


def _kind(tensor: Tensor) -> tuple[torch.Size, bool]:
    """Its shape, and whether it holds numbers; packed 4-bit weights are bytes."""
    return tensor.shape, tensor.is_floating_point()


def _form(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of {list(tensor.shape)}"
