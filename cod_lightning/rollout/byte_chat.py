"""A chat in bytes, for scripted players and people: no tokenizer to load, and any text survives encoding and decoding."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from cod_lightning.hostile_text import ControlTokens
from cod_lightning.rollout.chat import Chat
from cod_lightning.types import Message

_SPECIAL = {"<|end|>": 256, "<|system|>": 257, "<|user|>": 258, "<|assistant|>": 259}
_END = _SPECIAL["<|end|>"]
_SPELLED = re.compile("|".join(map(re.escape, _SPECIAL)))
_NAMES = {number: name.encode() for name, number in _SPECIAL.items()}


class ByteChat(Chat):
    """A token for each byte of UTF-8, and one for the beginning of each role and the end of a message."""

    def __init__(self) -> None:
        self.num_ids = 256 + len(_SPECIAL)
        self.rewrite_history = self.enable_thinking = False
        self._in_prompts = self._in_texts = self._in_responses = ControlTokens(_SPECIAL)
        self._vocabulary = None
        self._marks = set[str]()
        self._control_ids = frozenset(_SPECIAL.values())
        self.end_of_turn, self.stop_id, self.pad_id = _END, _END, 0
        self.stop_ids = self._ends = frozenset({_END})
        self._specials = _SPELLED

    def encode(self, text: str) -> tuple[int, ...]:
        """Bytes, and the ids of special tokens where they are spelled."""
        ids: list[int] = []
        at = 0
        for found in _SPELLED.finditer(text):
            ids += text[at : found.start()].encode()
            ids.append(_SPECIAL[found[0]])
            at = found.end()
        ids += text[at:].encode()
        return tuple(ids)

    def opening(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Each message between its role and its end, then the assistant's beginning."""
        dialogue = "".join(f"<|{message.role}|>{self.neutral(message.content)}<|end|>" for message in messages)
        return self.encode(f"{dialogue}<|assistant|>")

    def continuation(self, user_text: str, last_action_id: int | None) -> tuple[int, ...]:
        """The end of the assistant's message where it has none, the user's message, the assistant's beginning."""
        ended = "" if last_action_id == _END else "<|end|>"
        return self.encode(f"{ended}<|user|>{self.neutral(user_text)}<|end|><|assistant|>")

    def _template(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = (), *, begins: bool = True
    ) -> str:
        listed = [{"role": "system", "content": f"Tools: {json.dumps(tools)}"}] if tools else []
        parts = [
            f"<|{one['role'] if one['role'] in ('system', 'assistant') else 'user'}|>"
            + "\n".join(filter(None, (one.get("content"), *(json.dumps(c) for c in one.get("tool_calls", ())))))
            + "<|end|>"
            for one in [*listed, *messages]
        ]
        return "".join(parts) + "<|assistant|>" * begins

    def count(self, text: str) -> int:
        """Words: budgets of contexts are meant for a policy's tokens, of which bytes are no measure."""
        return len(text.split())

    def decode(self, action_ids: tuple[int, ...]) -> str:
        """The text without its final end; any other special token stays visible."""
        return self.text(action_ids[:-1] if action_ids[-1:] == (_END,) else action_ids)

    def text(self, ids: Sequence[int]) -> str:
        return b"".join(_NAMES.get(i) or bytes((i,)) for i in ids).decode("utf-8", "replace")


@lru_cache(maxsize=1)
def byte_chat() -> Chat:
    """The one chat in bytes.

    >>> chat = byte_chat()
    >>> chat.decode(chat.encode("caf\\u00e9 1=up"))
    'café 1=up'
    """
    return ByteChat()
