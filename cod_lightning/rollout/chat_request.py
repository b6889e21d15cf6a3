"""Requests and answers of the OpenAI chat dialect, as far as agent programs use it: messages, tools, calls, streams."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from cod_lightning.envs.tool_calls import STYLES, BadCalls, ToolCall, ToolStyle
from cod_lightning.hostile_text import CALLING
from cod_lightning.rollout.chat import Chat
from cod_lightning.types import Message, Role, StopReason, Turn

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_TEXTS = ("text", "input_text", "output_text", "refusal")


class BadRequest(ValueError):
    """The request is none that can be answered; its message says why."""


class _Function(Struct):
    name: str
    arguments: str | dict[str, Any] = "{}"


class _Call(Struct):
    function: _Function
    id: str = ""


class _Message(Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class ChatRequest(Struct):
    """What is read of a request's body. Whatever it asks of the sampling but its length and `stop` is left out: the policy is
    sampled as in all training."""

    messages: list[_Message]
    model: str = ""
    tools: list[dict[str, Any]] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    n: int | None = 1

    @classmethod
    def read(cls, body: bytes) -> "ChatRequest":
        """The request. Raises `BadRequest`."""
        try:
            found = msgspec.json.decode(body, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"the body is no chat request: {error}") from None
        if found.n not in (None, 1):
            raise BadRequest("n has to be 1: siblings are lifecycles here")
        if not found.messages:
            raise BadRequest("there are no messages")
        return found

    def listed(self) -> list[dict[str, Any]]:
        """The messages as chat templates take them. Raises `BadRequest`."""
        return [_listed(number, one) for number, one in enumerate(self.messages)]

    @property
    def most_tokens(self) -> int | None:
        """Of the answer; None where the request does not say."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts at which the answer ends for the program."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


def _listed(number: int, message: _Message) -> dict[str, Any]:
    if message.role not in _ROLES:
        raise BadRequest(f"messages[{number}].role is {message.role[:40]!r}; expected one of {', '.join(_ROLES)}")
    content = message.content if not isinstance(message.content, list) else ""
    for part in message.content if isinstance(message.content, list) else ():
        text = part.get("text", part.get("refusal"))
        if part.get("type") not in _TEXTS or not isinstance(text, str):
            raise BadRequest(
                f"messages[{number}] has a part of type {str(part.get('type'))[:40]!r}; only text is taken"
            )
        content = f"{content}{text}"
    found: dict[str, Any] = {"role": _ROLES[message.role], "content": content or ""}
    if message.tool_calls:
        found["tool_calls"] = [_call(number, one) for one in message.tool_calls]
    if message.tool_call_id is not None:
        found["tool_call_id"] = message.tool_call_id
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadRequest(f"messages[{number}] has half a surrogate pair") from None
    return found


def _call(number: int, call: _Call) -> dict[str, Any]:
    arguments = call.function.arguments
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        raise BadRequest(f"messages[{number}] has a call whose arguments are no JSON object")
    return {"type": "function", "id": call.id, "function": {"name": call.function.name, "arguments": arguments}}


def spoken(messages: Sequence[dict[str, Any]]) -> list[Message]:
    """The messages as text for engines and people without a template: results of tools are the user's, and joined."""
    out: list[Message] = []
    for one in messages:
        role = Role.USER if one["role"] == "tool" else Role(one["role"])
        calls = [json.dumps(call["function"]) for call in one.get("tool_calls", ())]
        text = "\n".join(filter(None, [one["content"], *calls]))
        if role is Role.USER and out and out[-1].role is Role.USER:
            text = f"{out.pop().content}\n{text}"
        out.append(Message(role, text))
    return out


@lru_cache(maxsize=8)
def style_of(chat: Chat) -> ToolStyle:
    """How the policy's chat template spells calls of tools, read from what it makes of one; Qwen's where it shows none."""
    dialogue = [
        {"role": "user", "content": "x"},
        CALLING,
        {"role": "tool", "content": "x", "tool_call_id": "call00000"},
    ]
    try:
        text = chat.asked(dialogue)
    except Exception:  # templates raise what they like
        return STYLES["qwen"]
    marks = {"qwen": "</tool_call>", "mistral": "[TOOL_CALLS]", "gpt_oss": "to=functions.", "llama": '"parameters"'}
    return STYLES[next((name for name, mark in marks.items() if mark in text), "qwen")]


class Reply(Struct):
    """What a program is answered."""

    turn: Turn
    number: int
    """Of the turn in its task, from 0."""
    content: str
    reasoning: str
    calls: list[ToolCall]
    prompt_tokens: int
    model: str = ""

    @classmethod
    def of(cls, turn: Turn, number: int, request: ChatRequest, style: ToolStyle, prompt_tokens: int) -> "Reply":
        """The turn in the dialect: thoughts and calls apart from what is said. Calls that cannot be read stay text."""
        before, thought, said = turn.response.rpartition("</think>")
        begun, calls = style.begin(said) if request.tools else "", list[ToolCall]()
        with suppress(BadCalls):
            calls = style.calls(begun) if begun else []
        if calls:
            said = said[: len(said) - len(begun)]
        ends = [at for stop in request.stops if stop and (at := said.find(stop)) >= 0]
        said = said[: min(ends)] if ends else said
        reasoning = before.replace("<think>", "").strip() if thought else ""
        return cls(turn, number, said.strip(), reasoning, calls, prompt_tokens, request.model)

    @property
    def message(self) -> dict[str, Any]:
        """The assistant's message."""
        found: dict[str, Any] = {"role": "assistant", "content": self.content or (None if self.calls else "")}
        if self.reasoning:
            found["reasoning_content"] = self.reasoning
        if self.calls:
            found["tool_calls"] = [
                {
                    "id": f"call{self.number:03d}{n:02d}",  # nine letters and digits, as Mistral's template wants them
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
                }
                for n, call in enumerate(self.calls)
            ]
        return found

    @property
    def listed(self) -> dict[str, Any]:
        """The same as a message of a later request, as templates take it."""
        return _listed(0, msgspec.convert(self.message, _Message))

    def body(self) -> dict[str, Any]:
        """As `chat.completion`."""
        choice = {"index": 0, "message": self.message, "finish_reason": self._reason, "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage}

    def chunks(self) -> Iterator[dict[str, Any]]:
        """As `chat.completion.chunk`s: the message, why it ended, what it cost."""
        delta = self.message
        for number, call in enumerate(delta.get("tool_calls", ())):
            call["index"] = number
        head = self._head("chat.completion.chunk")
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": self._reason}]}
        yield {**head, "choices": [], "usage": self._usage}

    @property
    def _reason(self) -> str:
        cut = self.turn.stop is not StopReason.STOP
        return "length" if cut else "tool_calls" if self.calls else "stop"

    @property
    def _usage(self) -> dict[str, int]:
        num = len(self.turn.action_ids)
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": num, "total_tokens": self.prompt_tokens + num}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": f"chatcmpl-{self.number}", "object": kind, "created": int(time.time()), "model": self.model}


def goes_on(before: Sequence[dict[str, Any]], messages: Sequence[dict[str, Any]]) -> bool:
    """Whether the messages are those before and others after them, up to white space at the ends of texts."""
    return len(messages) > len(before) and all(
        _same(one, other) for one, other in zip(before, messages[: len(before)], strict=True)
    )


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return {**one, "content": one["content"].strip()} == {**other, "content": other["content"].strip()}
