"""The apps for a person at a terminal: what may be typed for a response, what the apps hold, what the checks say at the end."""

import ast
import codeop
import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cod_lightning.envs.apps.actions import ToolCalls
from cod_lightning.envs.apps.checks import unasked
from cod_lightning.envs.apps.database import Change, noun
from cod_lightning.envs.for_people import ForPeople
from cod_lightning.envs.tool_calls import BadCalls, Spelled, SpelledByLlama, ToolCall

_BLOCK = "Lines after a colon end with an empty one"
_ABOUT_CODE = (
    f'Type Python; a statement is a turn, such as user.docs(app="mail"). {_BLOCK}; several statements stand between <answer> and '
    "</answer>, or have semicolons between them."
)
_ABOUT_CALLS = (
    'Type calls, such as user.docs(app="mail"), several with semicolons between them; or JSON, such as '
    '{"name": "user.docs", "arguments": {"app": "mail"}}'
)


class AppsForPeople(ForPeople[Any]):
    """The apps at a task, and how its state compares with what it asks for.

    Args:
        env: An `Apps` that is not compact, after `reset`.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        actions, self.apps, self.db = env._actions, env.site.apps, env._server.db
        self.actions, self.expected, self.checks = actions, env._task.expected(), env.checked()
        self.about = _ABOUT_CODE
        if isinstance(actions, ToolCalls):
            own = "" if actions.tagged else f"; or as the model does: {actions.style.whole}"
            self.about = f"{_ABOUT_CALLS}{own}."

    def meant(self, lines: Sequence[str]) -> str | None:
        """Code up to where a statement ends; calls in any of their forms, in the form of this environment."""
        text = "\n".join(lines)
        if isinstance(self.actions, ToolCalls):
            return _calls(text, self.actions)
        if "<answer>" in text:
            return text if "</answer>" in text else None
        return f"<answer>\n{text.strip()}\n</answer>" if _is_whole(text) else None

    def holds(self) -> Sequence[Mapping[str, str]]:
        """A row for each app, with the number of its rows."""
        home = {kind: app.name for app in reversed(self.apps) for kind in app.tables}
        counts = {app.name: list[str]() for app in self.apps}
        for kind, rows in self.expected.before.tables.items():
            if kind in home and rows:
                counts[home[kind]].append(f"{noun(kind)} {len(rows)}")
        return [{"app": app.name, "what it is": app.about, "holds": ", ".join(counts[app.name])} for app in self.apps]

    def outcome(self) -> Sequence[tuple[bool | None, str]]:
        """All checks, and what has changed without having been asked for."""
        others = unasked(self.expected, self.db)
        return [*((check.passed, check.about) for check in self.checks), *((None, _described(one)) for one in others)]


def _is_whole(code: str) -> bool:
    """Whether a statement has ended. Raises `ValueError` where it cannot be one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return codeop.compile_command(code) is not None
    except (SyntaxError, OverflowError, ValueError, MemoryError, RecursionError) as error:
        reason = getattr(error, "msg", str(error)) or "too deep"
        raise ValueError(f"That is no Python ({reason}); nothing was done.") from error


def _calls(text: str, actions: ToolCalls) -> str | None:
    """The response that makes these calls, once they are whole. Raises `ValueError` for what is none."""
    said, complaint = actions.read(text)
    try:
        if not complaint and actions.style.calls(said):
            return text
    except BadCalls:
        pass
    expected = f"That is no call; nothing was done. {_ABOUT_CALLS}."
    marked = text.lstrip().startswith(("{", "[", "<"))
    try:
        return actions.spelled(_in_json(text) if marked else _in_python(text)) if marked or _is_whole(text) else None
    except json.JSONDecodeError as error:
        if text.splitlines()[-1:] == [""] or text.endswith("\n"):
            raise ValueError(expected) from error
        return None
    except (ValueError, TypeError, SyntaxError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(expected) from error


def _in_json(text: str) -> list[ToolCall]:
    """Calls as objects one after the other, or in a list."""
    decoder, found, rest = json.JSONDecoder(), list[object](), text.strip()
    while rest:
        one, end = decoder.raw_decode(rest)
        found += one if isinstance(one, list) else [one]
        rest = rest[end:].lstrip(" \t\n;")
    return [_of_object(one) for one in found]


def _of_object(found: object) -> ToolCall:
    if isinstance(found, dict) and "parameters" in found:
        one = msgspec.convert(found, SpelledByLlama)
        return ToolCall(one.name, one.parameters)
    one = msgspec.convert(found, Spelled)
    return ToolCall(one.name, one.arguments)


def _in_python(text: str) -> list[ToolCall]:
    """Calls with named arguments, all of them values."""
    found: list[ToolCall] = []
    for statement in ast.parse(text.strip()).body:
        match statement:
            case ast.Expr(ast.Call(func=ast.Attribute(ast.Name(app), name), args=[], keywords=given)):
                arguments = {one.arg: ast.literal_eval(one.value) for one in given if one.arg}
                found.append(ToolCall(f"{app}.{name}", arguments))
            case _:
                raise ValueError("no call")
    return found


def _described(change: Change) -> str:
    """`mail 12 changed: unread True -> False`."""
    before, after = change
    what = f"{noun(change)} {(after or before).id}"  # pyright: ignore[reportOptionalMemberAccess]
    if after is None:
        return f"{what} is gone"
    columns = [name for name in after.__struct_fields__ if name != "id"]
    if before is None:
        return f"{what} is new: " + ", ".join(f"{name} {getattr(after, name)!r}" for name in columns)
    changed = [name for name in columns if getattr(before, name) != getattr(after, name)]
    return f"{what} changed: " + ", ".join(f"{n} {getattr(before, n)!r} -> {getattr(after, n)!r}" for n in changed)
