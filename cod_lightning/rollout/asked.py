"""A dialogue in messages as chat templates take them: tools are listed by the template, their calls and results have its own form.

Messages that go on from the latest ones extend the ids: the response stays as it was sampled, and only what the template puts
after it is added. Any others, or a template that rewrites history, begin a new segment.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError

from cod_lightning.envs.tool_calls import STYLES
from cod_lightning.errors import EnvironmentFailure
from cod_lightning.hostile_text import CALLING
from cod_lightning.rollout.chat import Chat
from cod_lightning.rollout.chat_request import ChatRequest, Reply, goes_on, spoken, style_of
from cod_lightning.rollout.dialogue import Dialogue, Sampler
from cod_lightning.types import Message, Part, Role, Turn

NOT_RENDERED = (TemplateError, TypeError, ValueError)
"""What a template raises that does not take the messages."""
_UNDONE = "not carried out"
_FORM = '<answer>\n{"name": NAME, "arguments": {...}}\n</answer>'


class AskedDialogue(Dialogue):
    """A dialogue that is asked chat requests; without a prompt before the first."""

    said: Sequence[dict[str, Any]] = ()
    """The latest request, and its answer."""
    tools: Sequence[Any] = ()
    _text = ""
    """The latest prompt, where it was rendered whole."""

    def ask(self, messages: Sequence[dict[str, Any]], tools: Sequence[Any]) -> None:
        """Put the request: after what was said, or as a new prompt. Raises one of `NOT_RENDERED`, and `ForgedRole`.

        Args:
            messages: As chat templates take them.
            tools: Their schemas.
        """
        chat = self.sampler.chat
        if self.said and tools == self.tools and goes_on(self.said, messages):
            try:
                text = chat.after_response(messages, len(self.said) - 1)
            except NOT_RENDERED:  # it is rendered again
                text = ""
            if text and chat.rewrite_history:
                kept = f"{self._text}{self.messages[-1].content}{text}"
                self._text = chat.asked(messages, tools)
                text = text if kept == self._text else ""
            if text:
                new = spoken(messages[len(self.said) :])
                self.put([*self.messages, *new], chat.ids_after(text, self._ids[-1]), extends=True)
                self.said = messages
                return
        text = chat.asked(messages, tools)
        for tool in tools[:1]:
            if str(tool.get("function", {}).get("name", "")) not in text:
                raise ValueError("it shows no tools; choose a policy whose template does")
        self.put(spoken(messages), chat.encode(text), extends=False)
        self.said, self.tools, self._text = messages, tools, text


class ToolDialogue(AskedDialogue):
    """The dialogue of a solve episode in an environment with tools, whose results have the role of a tool."""

    _reply: Reply

    def calls_of(self, turn: Turn) -> str:
        """What the environment is to carry out: the response's calls as lines of JSON, or the response where it has none."""
        request = ChatRequest(messages=[], tools=list(self.tools))
        self._reply = Reply.of(turn, self._num_turns - 1, request, style_of(self.sampler.chat), 0)
        self.said = [*self.said, self._reply.listed]
        if not self._reply.calls:
            return turn.response
        lines = STYLES["json"].spelled(self._reply.calls).replace("<", r"\u003c")  # nothing in them can end the answer
        return f"<answer>\n{lines}\n</answer>"

    def say(self, text: str, parts: tuple[Part, ...] = (), results: Sequence[str] = ()) -> None:
        """Append what each call showed, or the user's next message, in text: no world shows images beside tools. Raises
        `ForgedRole`, and `EnvironmentFailure`."""
        new: list[dict[str, Any]] = [{"role": "user", "content": text}]
        if results and (calls := self._reply.listed.get("tool_calls", ())):
            shown = [*results, *[_UNDONE] * len(calls)]
            new = [
                {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": one}
                for call, one in zip(calls, shown, strict=False)
            ]
        with _taking("what its calls have shown"):
            self.ask([*self.said, *new], self.tools)


def opened(sampler: Sampler, identity: str, system: str, observation: Message, tools: Sequence[Any]) -> Dialogue:
    """A solve episode's dialogue about tools. Raises `ForgedRole`, and `EnvironmentFailure`."""
    messages = first_messages(sampler.chat, system, observation.content, tools, by_template=sampler.engine.has_weights)
    if not sampler.engine.has_weights or not shows_tools(sampler.chat):
        return Dialogue(sampler, identity, messages)
    with _taking("the tools"):
        dialogue = ToolDialogue(sampler, identity)
        dialogue.ask(_listed(messages), tools)
        return dialogue


def first_ids(chat: Chat, system: str, observation: str, tools: Sequence[Any]) -> tuple[int, ...]:
    """A solve episode's first prompt, for a policy with weights. Raises what `opened` raises."""
    messages = first_messages(chat, system, observation, tools, by_template=True)
    if not tools or not shows_tools(chat):
        return chat.opening(messages)
    with _taking("the tools"):
        return chat.encode(chat.asked(_listed(messages), tools))


@contextmanager
def _taking(what: str) -> Iterator[None]:
    """Raise `EnvironmentFailure` where the policy's chat template does not take this."""
    try:
        yield
    except NOT_RENDERED as error:
        raise EnvironmentFailure(f"the policy's chat template does not take {what}: {error}") from error


def first_messages(
    chat: Chat, system: str, observation: str, tools: Sequence[Any], *, by_template: bool
) -> tuple[Message, ...]:
    """System text and observation; where no template lists the tools, the system text does."""
    if tools and not (by_template and shows_tools(chat)):
        listed = "\n".join(json.dumps(tool["function"]) for tool in tools)
        system = f"{system}\n\nTools:\n{listed}\n\nCall them in this form, {STYLES['json'].whole}:\n{_FORM}"
    return chat.prefixed((Message(Role.SYSTEM, system), Message(Role.USER, observation)))


@lru_cache(maxsize=8)
def shows_tools(chat: Chat) -> bool:
    """Whether the chat's template lists tools and shows what they answer."""
    tool = {"type": "function", "function": {"name": "look", "description": "x", "parameters": {"type": "object"}}}
    dialogue = [
        {"role": "user", "content": "x"},
        CALLING,
        {"role": "tool", "content": "seen", "name": "look", "tool_call_id": "call00000"},
    ]
    try:
        return "look" in chat.asked(dialogue[:1], [tool]) and "seen" in chat.asked(dialogue, [tool])
    except Exception:  # templates raise what they like
        return False


def _listed(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [{"role": one.role.value, "content": one.content} for one in messages]
