"""How an adapter gets into vLLM: through a folder in memory, under a new id with every sync."""

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from cod_lightning.adapters import write_adapter, write_adapter_config
from cod_lightning.engines.vllm_folder import memory_folder
from cod_lightning.errors import ConfigError, EngineFailure
from cod_lightning.files import scratch_prefix

if TYPE_CHECKING:
    from vllm.lora.request import LoRARequest  # pyright: ignore[reportMissingImports]
    from vllm.v1.engine.llm_engine import LLMEngine  # pyright: ignore[reportMissingImports]

_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM can make room for."""


class AdapterFolder:
    """Hands a model's adapter to vLLM again and again.

    vLLM goes on with the old adapter where an id comes a second time, so none does; the one before is taken out.

    Args:
        model: A transformers model with an adapter; only its settings are kept.
    """

    def __init__(self, model: nn.Module) -> None:
        parent = memory_folder()
        self.folder = Path(tempfile.mkdtemp(prefix=scratch_prefix("adapter", parent), dir=parent))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self._last_id = 0
        write_adapter_config(model, self.folder)

    def load(self, llm: "LLMEngine", weights: dict[str, Tensor]) -> "LoRARequest":
        """Put the weights into vLLM; what requests have to name to get them."""
        write_adapter(weights, self.folder)
        before, number = self._last_id, self._next_id()
        if before > 0 and before != number:
            llm.remove_lora(before)
        request = self._request(number)
        if not llm.add_lora(request):
            raise EngineFailure(f"vLLM did not take the adapter of sync {number}")
        return request

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _request(self, number: int) -> Any:
        from vllm.lora.request import LoRARequest  # pyright: ignore[reportMissingImports]

        return LoRARequest(f"sync-{number}", number, str(self.folder))


def room_for(rank: int) -> int:
    """The largest rank that vLLM is started for. Raises `ConfigError` where the adapter's is larger than any that vLLM knows."""
    if rank > _RANKS[-1]:
        expected = f"at most {_RANKS[-1]}, the largest rank that vLLM serves"
        raise ConfigError("model.policy.rank", rank, expected, "Lower it, or choose engine=TransformersEngine.")
    return next(size for size in _RANKS if size >= rank)
