"""How both vLLM engines ask for a turn, and what its end means."""

from collections.abc import Sequence
from typing import Any

from cod_lightning.engines.base import Request
from cod_lightning.errors import EngineRefused
from cod_lightning.types import StopReason

STOPS = {"stop": StopReason.STOP, "length": StopReason.LENGTH}
_COLDEST = 0.01
"""Lowest temperature above 0; below it vLLM samples at this one and only logs that it does."""


def sampling_fields(request: Request, stop_ids: Sequence[int]) -> dict[str, Any]:
    """vLLM's sampling parameters for token ids and their log-probs; only `stop_ids` end a turn, whatever the checkpoint's settings.

    Raises:
        EngineRefused: For a temperature that vLLM does not sample at.
    """
    if 0 < request.temperature < _COLDEST:
        raise EngineRefused(
            f"temperature {request.temperature}: between 0 and {_COLDEST} vLLM samples at {_COLDEST} and only logs it. "
            f"Take 0 (greedy) or at least {_COLDEST}."
        )
    return {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_tokens": request.max_new_tokens,
        "seed": request.noise_seed & (2**63 - 1),
        "stop_token_ids": list(stop_ids),
        "ignore_eos": True,
        "logprobs": 0,
        "detokenize": False,
    }
