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
    _see_types(ids, _IDS, "token ids")
    if min(ids) < 0 or max(ids) >= num_ids:
        wrong = next(i for i in ids if not 0 <= i < num_ids)
        raise BadCompletion(f"token id {wrong}, outside the vocabulary of {num_ids}")
    _see_types(logprobs, _LOGPROBS, "log-probs")
    if not math.isfinite(sum(logprobs)) or max(logprobs) > _ROUNDING:  # not finite if any is not
        wrong = next((p for p in logprobs if not (math.isfinite(p) and p <= _ROUNDING)), sum(logprobs))
        raise BadCompletion(f"log-prob {wrong}, where one is finite and at most 0")
    if not isinstance(completion.stop, StopReason) or not isinstance(completion.policy_version, int):
        raise BadCompletion(f"stop {completion.stop!r}, policy version {completion.policy_version!r}")
    if completion.prompt_digest != prompt_digest:
        raise BadCompletion("its digest shows that it continues other ids than those of the prompt")
    return completion


def _see_types(values: tuple[object, ...], allowed: frozenset[type], what: str) -> None:
    if types := set(map(type, values)) - allowed:
        raise BadCompletion(f"{what} of type {', '.join(sorted(t.__name__ for t in types))}")
