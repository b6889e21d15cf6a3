"""The body of a chat completion, strictly read: the text, why it ended, and the tokens that it took."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cod_lightning.clients.failure import EndpointFailure
from cod_lightning.types import StopReason

_MOST_TOKENS = 10**9
"""No single answer has more; a larger count is no count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """An answer that counts as the model's own words.

    An empty answer, a refusal, or one that ran out of tokens during its thoughts is the model's doing.
    """

    text: str
    stop: StopReason
    note: str = ""
    """`empty`, `refusal` or `cut off`, for the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Token counts of one answer."""

    prompt: int
    completion: int
    cached: int = 0
    """Prompt tokens that the endpoint had in its cache; part of `prompt`."""


def completion_of(body: bytes) -> Mapping[str, Any]:
    """The body as a JSON object. Raises `EndpointFailure` if it is none."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise EndpointFailure("invalid JSON", f"{len(body)} bytes that are no JSON in UTF-8") from None
    if not isinstance(content, Mapping):
        raise EndpointFailure("invalid JSON", f"a {type(content).__name__}, not an object")
    return content


def answer_of(content: Mapping[str, Any]) -> ChatAnswer:
    """The first choice of a chat completion.

    >>> answer_of({"choices": [{"message": {"content": "up"}, "finish_reason": "stop"}]}).text
    'up'

    Raises:
        EndpointFailure: For anything that is no chat completion, and for what the service, not the model, held back.
    """
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
        raise EndpointFailure("no text", f"the text is empty, and it ended with {reason!r}")
    cut = reason == "length"
    note = "cut off" if cut else "refusal" if refusal else "" if text else "empty"
    return ChatAnswer(text=text or refusal or "", stop=StopReason.LENGTH if cut else StopReason.STOP, note=note)


def tokens_of(content: Mapping[str, Any]) -> Tokens | None:
    """The endpoint's own counts; None where it gives none."""
    usage = content.get("usage")
    if not isinstance(usage, Mapping) or not (prompt := _count(usage, "prompt_tokens")):
        return None
    details = usage.get("prompt_tokens_details")
    cached = _count(details, "cached_tokens") if isinstance(details, Mapping) else 0
    return Tokens(prompt=prompt, completion=_count(usage, "completion_tokens"), cached=min(cached, prompt))


def _count(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    return value if isinstance(value, int) and 0 <= value <= _MOST_TOKENS else 0
