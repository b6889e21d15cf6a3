"""The body of a chat completion, strictly read: what was said, why it ended, and what it took."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cod_lightning.engines.endpoint_failure import EndpointFailure
from cod_lightning.types import StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """An answer that counts as the policy's own words, be they few.

    That a model says nothing, refuses, or runs out of tokens while it thinks is its own doing: its reward is that of the text.
    """

    text: str
    stop: StopReason
    note: str = ""
    """`empty`, `refusal` or `cut off`, for the report."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that the endpoint had in its cache; part of `prompt_tokens`."""
    told: bool = False
    """Whether the endpoint said how many tokens there were."""


def answer_of(body: str | bytes) -> ChatAnswer:
    """The first choice of a chat completion.

    >>> answer_of('{"choices": [{"message": {"content": "up"}, "finish_reason": "stop"}]}').text
    'up'

    Raises:
        EndpointFailure: For anything that is no chat completion, and for what the service, not the model, held back.
    """
    content = _object(body)
    choices = content.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise EndpointFailure("no choices", f"the answer's keys are {sorted(map(str, content))[:10]}")
    message, reason = choices[0].get("message"), choices[0].get("finish_reason")
    if reason == "content_filter":
        raise EndpointFailure("content filter", "the service held the answer back")
    if not isinstance(message, Mapping):
        raise EndpointFailure("no message", f"the first choice has {sorted(map(str, choices[0]))[:10]}")
    text, refusal = message.get("content"), message.get("refusal")
    if not isinstance(text, str | None) or not isinstance(refusal, str | None):
        raise EndpointFailure("no text", f"the content is a {type(text).__name__}, not a string")
    if any("\ud800" <= letter <= "\udfff" for letter in text or refusal or ""):
        raise EndpointFailure("no text", "half a surrogate pair, which no tokenizer takes")
    if not (text or refusal) and reason not in ("stop", "length"):
        raise EndpointFailure("no text", f"nothing was said, and it ended with {reason!r}")
    cut = reason == "length"
    note = "cut off" if cut else "refusal" if refusal else "" if text else "empty"
    return ChatAnswer(
        text=text or refusal or "", stop=StopReason.LENGTH if cut else StopReason.STOP, note=note, **_usage(content)
    )


def _object(body: str | bytes) -> Mapping[str, Any]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise EndpointFailure("invalid JSON", f"{len(body)} bytes that are no JSON in UTF-8") from None
    if not isinstance(content, Mapping):
        raise EndpointFailure("invalid JSON", f"a {type(content).__name__}, not an object")
    return content


def _usage(content: Mapping[str, Any]) -> dict[str, Any]:
    usage = content.get("usage")
    if not isinstance(usage, Mapping):
        return {}
    details = usage.get("prompt_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, Mapping) else 0
    prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "cached_tokens": min(cached, prompt),
        "told": prompt > 0,
    }


def _count(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    return value if isinstance(value, int) and value >= 0 else 0
