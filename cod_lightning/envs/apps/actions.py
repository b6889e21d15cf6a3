"""How an agent makes calls in text: one JSON object a line, or code; either way the first error stops the rest of the turn."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from cod_lightning.envs.apps.agent import Call
from cod_lightning.envs.apps.api import ApiError
from cod_lightning.envs.apps.sandbox import Session
from cod_lightning.envs.apps.server import Server

MOST_LETTERS = 4_000
MOST_CALLS = 20
MOST_SHOWN = 8_000


class Actions(ABC):
    """A form of action, with what it keeps between turns."""

    example: str
    """As the rules show it."""

    @abstractmethod
    def run(self, text: str, server: Server) -> str:
        """Carry out what stands between the answer tags; never raises. Returns what is shown."""

    @staticmethod
    @abstractmethod
    def spelled(calls: Sequence[Call]) -> str:
        """The text that makes these calls."""


class ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    """One line of the JSON form."""

    name: str
    arguments: dict[str, Any] = {}


class JsonCalls(Actions):
    """One JSON object a line: a name and arguments."""

    example = (
        '<answer>\n{"name": "user.docs", "arguments": {"app": "mail"}}\n'
        '{"name": "user.passwords", "arguments": {}}\n</answer>'
    )

    def run(self, text: str, server: Server) -> str:
        lines = [line for line in text[:MOST_LETTERS].splitlines() if line.strip()]
        if len(text) > MOST_LETTERS or not 1 <= len(lines) <= MOST_CALLS:
            return f"refused: expected 1 to {MOST_CALLS} calls, a line each, of {MOST_LETTERS} letters in all"
        try:
            calls = [msgspec.json.decode(line, type=ToolCall) for line in lines]
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            return 'refused: a line is no JSON object such as {"name": "user.passwords", "arguments": {}}; nothing was done'
        shown: list[str] = []
        for call in calls:
            try:
                shown.append(json.dumps(server.call(call.name, call.arguments)))
            except ApiError as error:
                return "\n".join([*shown, str(error)])
            if server.finished:
                break
        return "\n".join(shown)

    @staticmethod
    def spelled(calls: Sequence[Call]) -> str:
        return "\n".join(json.dumps({"name": call.name, "arguments": call.arguments}) for call in calls)


class CodeActions(Actions):
    """Code in the sandbox; variables stay for the task."""

    example = '<answer>\nfor line in user.docs(app="mail"):\n    print(line)\n</answer>'

    def __init__(self, apps: Sequence[str]) -> None:
        self.session = Session(apps)

    def run(self, text: str, server: Server) -> str:
        return self.session.run(text, server.call, (ApiError,))

    @staticmethod
    def spelled(calls: Sequence[Call]) -> str:
        def line(call: Call) -> str:
            return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"

        return "\n".join(map(line, calls))


_UNSHOWN = re.compile(r"[^ -~\n]|[<>|]")


def clean(text: str) -> str:
    """Plain ASCII without tags, shortened: what a policy wrote into the apps comes back from them.

    >>> clean("<|end|> caf\\u00e9")
    '??end?? caf?'
    """
    kept = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}\n..."
    return _UNSHOWN.sub("?", kept)
