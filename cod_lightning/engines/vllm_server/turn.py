"""A turn as vLLM's token route takes it and answers it, and how that can fail."""

from collections.abc import Sequence
from typing import Any

from cod_lightning.engines.base import Completion, Request, digest
from cod_lightning.engines.vllm_sampling import STOPS, sampling_fields
from cod_lightning.errors import EngineFailure


class ServerLost(EngineFailure):
    """The server is gone, broken, or has other weights than it should; another may serve the turn."""


class ServerRefused(EngineFailure):
    """The server denies this one request (HTTP 4xx)."""


def turn_body(request: Request, stop_ids: Sequence[int], adapter: str = "") -> dict[str, Any]:
    """A request for token ids and their log-probs.

    `adapter` is the name under which the server got one; empty asks the model that it was started with.
    """
    return {
        **({"model": adapter} if adapter else {}),
        "token_ids": list(request.prompt_ids),
        "return_token_ids": True,
        "sampling_params": sampling_fields(request, stop_ids),
    }


def answer_of(content: Any) -> tuple[Completion, frozenset[str]]:
    """A sampled turn, without its policy version, and the labels of the weights that its tokens were sampled by.

    Strictly read. Raises `EngineFailure` for what is no answer, `ServerLost` for a turn that the server broke off."""
    try:
        (choice,) = content["choices"]
        ids = tuple(int(i) for i in choice["token_ids"])
        tokens = choice["logprobs"]["content"] or ()
        logprobs = tuple(float(at["logprob"]) for at in tokens)
        spelled = tuple(int(at["token_id"]) for at in tokens)
        reason, spans = choice["finish_reason"], choice["weight_versions"] or ()
        prompt_digest = digest(content["prompt_token_ids"])
        versions = frozenset(str(span["version"]) for span in spans)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise EngineFailure(f"a vLLM server's answer lacks {type(error).__name__}: {error}") from None
    if ids != spelled:
        raise EngineFailure("a vLLM server's log-probs are not those of its tokens")
    if reason not in STOPS:
        raise ServerLost(f"a vLLM server ended the request with {reason!r}")
    if ids and not versions:  # vLLM says null where it does not know
        raise EngineFailure("a vLLM server does not say which weights sampled its tokens")
    turn = Completion(
        action_ids=ids,
        behaviour_logprobs=logprobs,
        stop=STOPS[reason],
        policy_version=-1,
        prompt_digest=prompt_digest,
    )
    return turn, versions
