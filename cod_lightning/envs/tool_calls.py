"""Tool calls as chat templates of four families spell them, read strictly: after the first mark there is nothing but calls.

Formats as the families document them: Qwen 2.5 and 3 (Hermes), Llama 3.1 and later (JSON), Mistral (v3 to v7), GPT-OSS (harmony).
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_DEEPEST = 100
"""Brackets within brackets; clients of servers raise where they are to write 255."""
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}]')
_OPENED = {"[": 1, "{": 1, "]": -1, "}": -1}


@dataclass(frozen=True)
class ToolCall:
    """One call as an agent makes it."""

    name: str
    arguments: dict[str, Any]


class BadCalls(ValueError):
    """The text is no list of calls in the style."""


class Spelled(msgspec.Struct, forbid_unknown_fields=True):
    """A call as most families spell it. Mistral's has an id, too, which means nothing here."""

    name: str
    arguments: dict[str, Any] = {}
    id: str = ""


class SpelledByLlama(msgspec.Struct, forbid_unknown_fields=True):
    """A call of Llama's; its arguments are its parameters."""

    name: str
    parameters: dict[str, Any] = {}
    type: str = "function"


class ToolStyle(ABC):
    """How a family spells calls."""

    marks: str
    """A regular expression for where calls begin; what stands before is reasoning."""
    whole: str
    """The form, as rules and feedback name it."""

    @abstractmethod
    def spelled(self, calls: Sequence[ToolCall]) -> str:
        """The calls in this style."""

    @abstractmethod
    def calls(self, text: str) -> list[ToolCall]:
        """The calls of a text that begins at a mark. Raises a `BadCalls`."""

    def begin(self, response: str) -> str:
        """What a response holds from the first mark on; empty where there is none."""
        found = re.search(self.marks, response)
        return response[found.start() :] if found else ""


def decoded(text: str, kind: type[T]) -> T:
    """JSON of this type, which any server can be sent. Raises a `BadCalls`."""
    try:
        found = msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError) as error:
        raise BadCalls from error
    if max(accumulate(_OPENED.get(part, 0) for part in _BRACKETS.findall(text))) > _DEEPEST:
        raise BadCalls
    return found


def _call(text: str) -> ToolCall:
    one = decoded(text, Spelled)
    return ToolCall(one.name, one.arguments)


def _json(call: ToolCall, arguments: str = "arguments") -> str:
    return json.dumps({"name": call.name, arguments: call.arguments})


class Lines(ToolStyle):
    """One JSON object a line; no family's."""

    marks = r"\S"
    whole = 'one {"name": ..., "arguments": {...}} a line'

    def spelled(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(map(_json, calls))

    def calls(self, text: str) -> list[ToolCall]:
        return [_call(line) for line in text.splitlines() if line.strip()]


class Qwen(ToolStyle):
    """A block with tags for each call."""

    marks = "<tool_call>"
    whole = '<tool_call>{"name": ..., "arguments": {...}}</tool_call> for each'

    def spelled(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(f"<tool_call>\n{_json(call)}\n</tool_call>" for call in calls)

    def calls(self, text: str) -> list[ToolCall]:
        *blocks, rest = text.split("</tool_call>")
        if rest.strip() or not all(block.strip().startswith("<tool_call>") for block in blocks):
            raise BadCalls
        return [_call(block.strip().removeprefix("<tool_call>")) for block in blocks]


class Llama(ToolStyle):
    """JSON objects with `parameters`, several with semicolons between them."""

    marks = r"<\|python_tag\|>|(?m:^[^\S\n]*\{)"  # within its line: over many empty ones it would take minutes
    whole = '{"name": ..., "parameters": {...}} on a line of its own, several with ; between them'

    def spelled(self, calls: Sequence[ToolCall]) -> str:
        return "; ".join(_json(call, "parameters") for call in calls)

    def calls(self, text: str) -> list[ToolCall]:
        decoder, found = json.JSONDecoder(), list[ToolCall]()
        rest = text.removeprefix("<|python_tag|>").strip()
        while rest:
            try:
                end = decoder.raw_decode(rest)[1]
            except (ValueError, RecursionError) as error:
                raise BadCalls from error
            one = decoded(rest[:end], SpelledByLlama)
            found.append(ToolCall(one.name, one.parameters))
            rest, more = rest[end:].lstrip(), rest[end:].strip() not in ("", ";")
            if more and not rest.startswith(";"):
                raise BadCalls
            rest = rest.removeprefix(";").strip()
        return found


class Mistral(ToolStyle):
    """One list of all calls after a mark."""

    marks = r"\[TOOL_CALLS\]"
    whole = '[TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]'

    def spelled(self, calls: Sequence[ToolCall]) -> str:
        return f"[TOOL_CALLS][{', '.join(map(_json, calls))}]"

    def calls(self, text: str) -> list[ToolCall]:
        listed = decoded(text.removeprefix("[TOOL_CALLS]").strip(), list[Spelled])
        return [ToolCall(one.name, one.arguments) for one in listed]


class GptOss(ToolStyle):
    """A message to `functions.NAME` on the commentary channel for each call; the model's form and its template's."""

    marks = r"(?:<\|start\|>assistant )?to=functions\.|<\|channel\|>commentary to=functions\."
    whole = "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|> for each"
    _head = re.compile(
        r"(?:<\|start\|>assistant)?(?:<\|channel\|>commentary to=functions\.([\w.]+) ?(?:<\|constrain\|>)?json"
        r"| ?to=functions\.([\w.]+)<\|channel\|>commentary (?:<\|constrain\|>)?json)<\|message\|>",
        re.ASCII,
    )

    def spelled(self, calls: Sequence[ToolCall]) -> str:
        return "<|start|>assistant".join(
            f"<|channel|>commentary to=functions.{call.name} <|constrain|>json<|message|>{json.dumps(call.arguments)}<|call|>"
            for call in calls
        )

    def calls(self, text: str) -> list[ToolCall]:
        found: list[ToolCall] = []
        for block in text.strip().removesuffix("<|call|>").split("<|call|>"):
            head = self._head.match(block)
            if head is None:
                raise BadCalls
            name, arguments = head[1] or head[2], block[head.end() :]
            found.append(ToolCall(name, decoded(arguments, dict[str, Any])))
        return found


STYLES: Mapping[str, ToolStyle] = {
    "json": Lines(), "qwen": Qwen(), "llama": Llama(), "mistral": Mistral(), "gpt_oss": GptOss(),
}  # fmt: skip
"""By the name that `actions` takes."""
