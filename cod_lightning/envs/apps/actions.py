"""How an agent makes calls: as tool calls, or in code; either way the first error stops the rest of the turn."""

import json
from collections.abc import Sequence

from cod_lightning.envs.answers import answer_of
from cod_lightning.envs.apps.api import ApiError
from cod_lightning.envs.apps.sandbox import MOST_LETTERS, CodeSession
from cod_lightning.envs.apps.server import AppServer
from cod_lightning.envs.tool_calls import STYLES, BadCalls, ToolCall

MOST_CALLS = 20


class ToolCalls:
    """Calls in a style: `json` between answer tags, others as the family spells them; `tools` are listed by the template."""

    results: Sequence[str] = ()
    """What each of the latest calls has shown, where they are calls of tools that the template lists."""

    def __init__(self, style: str) -> None:
        self.listed = style == "tools"
        style = "json" if self.listed else style
        self.style, self.tagged = STYLES[style], style == "json"
        self.about = "calls of tools" if self.listed else f"calls as JSON: {self.style.whole}"
        """What a turn is."""
        asked = [ToolCall("user.docs", {"app": "mail"}), ToolCall("user.passwords", {})]
        self.example = "" if self.listed else self.spelled(asked)
        """A response, as the rules show it; empty where the template says how calls are made."""

    def read(self, response: str) -> tuple[str, str]:
        """(what is to be carried out, "") or ("", which rule of the form was broken)."""
        text, complaint = answer_of(response) if self.tagged else (response, "")
        if complaint and self.listed:  # the template may spell calls in another way, which says nothing of tags
            return "", "it makes no call of a tool that can be read"
        text = self.style.begin(text)
        return text, complaint or ("" if text else f"there is no call; expected {self.style.whole}")

    def run(self, text: str, server: AppServer) -> str:
        """Carry it out; never raises. Returns what is shown."""
        self.results = ()
        try:
            calls = self.style.calls(text) if len(text) <= MOST_LETTERS else []
        except BadCalls:
            return f"refused: that is no list of calls; expected {self.style.whole}; nothing was done"
        if not 1 <= len(calls) <= MOST_CALLS:
            return f"refused: expected 1 to {MOST_CALLS} calls in {MOST_LETTERS} letters; nothing was done"
        shown: list[str] = []
        for call in calls:
            try:
                shown.append(json.dumps(server.call(call.name, call.arguments)))
            except ApiError as error:
                shown.append(str(error))
                break
            if server.finished:
                break
        self.results = shown if self.listed else ()
        return "\n".join(shown)

    def spelled(self, calls: Sequence[ToolCall]) -> str:
        """The end of a response that makes these calls."""
        text = self.style.spelled(calls)
        return f"<answer>\n{text}\n</answer>" if self.tagged else text


class CodeActions:
    """Code in the sandbox; variables stay for the task."""

    results: Sequence[str] = ()
    about = (
        "Python code in a sandbox: calls take named arguments, print and bare expressions show values, variables stay for the "
        "task, imports do not exist"
    )
    example = '<answer>\nfor line in user.docs(app="mail"):\n    print(line)\n</answer>'

    def __init__(self, apps: Sequence[str]) -> None:
        self.session = CodeSession(apps)

    def read(self, response: str) -> tuple[str, str]:
        code, complaint = answer_of(response)
        return code, complaint or ("" if code else "the answer is empty")

    def run(self, text: str, server: AppServer) -> str:
        return self.session.run(text, server.call, (ApiError,))

    def spelled(self, calls: Sequence[ToolCall]) -> str:
        def line(call: ToolCall) -> str:
            return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"

        return "\n".join(["<answer>", *map(line, calls), "</answer>"])


Actions = ToolCalls | CodeActions
"""A form of action, with what it keeps between turns."""
