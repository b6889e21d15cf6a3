"""Checks a completion of any engine once, before it becomes a turn."""

import math

from cod_lightning.engines.base import Completion
from cod_lightning.errors import BadCompletion
from cod_lightning.types import StopReason

_IDS, _LOGPROBS = frozenset({int}), frozenset({float, int})
"""Types of what is in a completion: no booleans, no arrays' scalars."""
_ROUNDING = 1e-2
"""nats by which a log-probability may exceed 0 in low precision."""


def check_completion(completion: object, *, max_new_tokens: int | None, num_ids: int, prompt_digest: int) -> Completion:
    """The completion, or `BadCompletion` that names what is wrong with it.

    Args:
        completion: What the engine returned.
        max_new_tokens: Most ids; None for an engine that counts in other tokens than the policy.
        num_ids: Ids are below it.
        prompt_digest: Of the ids that it had to go on from.
    """
    if not isinstance(completion, Completion):
        raise BadCompletion(f"a {type(completion).__name__} instead of a Completion")
    ids, logprobs = completion.action_ids, completion.behaviour_logprobs
    if not ids:
        raise BadCompletion("no tokens, where even silence has its end token")
    if max_new_tokens is not None and len(ids) > max_new_tokens:
        raise BadCompletion(f"{len(ids)} tokens where {max_new_tokens} were asked for")
    if len(logprobs) != len(ids):
        raise BadCompletion(f"{len(logprobs)} log-probs for {len(ids)} tokens")
    if not _IDS.issuperset(map(type, ids)) or min(ids) < 0 or max(ids) >= num_ids:
        raise BadCompletion(_wrong_ids(ids, num_ids))
    numbers = _LOGPROBS.issuperset(map(type, logprobs))
    if not numbers or not math.isfinite(sum(logprobs)) or max(logprobs) > _ROUNDING:  # not finite if any is not
        raise BadCompletion(_wrong_logprobs(logprobs))
    if not isinstance(completion.stop, StopReason) or not isinstance(completion.policy_version, int):
        raise BadCompletion(f"stop {completion.stop!r}, policy version {completion.policy_version!r}")
    if completion.prompt_digest != prompt_digest:
        raise BadCompletion("its digest shows that it continues other ids than those of the prompt")
    return completion


def _wrong_ids(ids: tuple[int, ...], num_ids: int) -> str:
    if types := set(map(type, ids)) - _IDS:
        return f"token ids of type {_names(types)}"
    wrong = next(i for i in ids if not 0 <= i < num_ids)
    return f"token id {wrong}, outside the vocabulary of {num_ids}"


def _wrong_logprobs(logprobs: tuple[float, ...]) -> str:
    if types := set(map(type, logprobs)) - _LOGPROBS:
        return f"log-probs of type {_names(types)}"
    wrong = next((p for p in logprobs if not (math.isfinite(p) and p <= _ROUNDING)), sum(logprobs))
    return f"log-prob {wrong}, where one is finite and at most 0"


def _names(types: set[type]) -> str:
    return ", ".join(sorted(t.__name__ for t in types))
