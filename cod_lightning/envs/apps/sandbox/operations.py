"""Operators, functions and methods that code may use, on plain values alone."""

import operator
import re
from collections.abc import Callable
from typing import Any

from cod_lightning.envs.apps.sandbox.bounds import CodeError, CodeRefused, Meter, checked, size

NUMBER = (int, float)
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv, "FloorDiv": operator.floordiv,
    "Mod": operator.mod, "Pow": operator.pow,
}  # fmt: skip
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq, "NotEq": operator.ne, "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge,
    "Is": operator.is_, "IsNot": operator.is_not, "In": lambda a, b: a in b, "NotIn": lambda a, b: a not in b,
}  # fmt: skip
UNARY: dict[str, Callable[[Any], Any]] = {"Not": operator.not_, "USub": operator.neg, "UAdd": operator.pos}
METHODS: dict[type, tuple[str, ...]] = {
    str: (
        "lower", "upper", "strip", "lstrip", "rstrip", "split", "splitlines", "startswith", "endswith", "replace", "find",
        "count", "join", "isdigit", "title",
    ),
    list: ("append", "extend", "insert", "pop", "remove", "index", "count", "reverse", "copy", "clear"),
    dict: ("get", "keys", "values", "items", "pop", "update", "setdefault", "copy", "clear"),
    tuple: ("index", "count"),
}  # fmt: skip
PLAIN = (str, int, float, bool, type(None), list, dict, tuple)


def binary(meter: Meter, name: str, left: Any, right: Any) -> Any:
    """`left op right` for numbers, and + and * for texts and lists."""
    if isinstance(left, NUMBER) and isinstance(right, NUMBER):
        if name == "Pow" and (not 0 <= right <= 64 or abs(left) > 2**32):
            raise CodeError("OverflowError: a power is too large")
        if name == "Pow" and left < 0 and not isinstance(right, int):
            raise CodeError("ValueError: a negative number has no such power")
        return checked(BINARY[name](left, right))
    if name == "Add" and type(left) is type(right) and isinstance(left, (str, list, tuple)):
        meter.made(size(left) + size(right))
        return left + right
    if name == "Mult" and isinstance(right, int) and isinstance(left, (str, list)):
        meter.made(size(left) * max(0, right))
        return left * right
    raise CodeError(f"TypeError: unsupported operands {kind(left)} and {kind(right)}")


def compare(meter: Meter, name: str, left: Any, right: Any) -> bool:
    """`left op right`."""
    if name not in ("Is", "IsNot"):
        meter.weigh(left, right)
    return bool(COMPARE[name](left, right))


def kind(value: Any) -> str:
    """Name of a value's type."""
    return type(value).__name__


_FORMAT = re.compile(r"[<>^]?[+]?0?\d{0,2},?(\.\d)?[dfgs%]?", re.ASCII)


def formatted(meter: Meter, value: Any, spec: str) -> str:
    """A piece of an f-string."""
    if not _FORMAT.fullmatch(spec):
        raise CodeRefused("a format is none of those that are allowed")
    meter.weigh(value)
    return format(value, spec) if spec else str(value)


def method(meter: Meter, target: Any, name: str, args: list[Any], named: dict[str, Any]) -> Any:
    """`target.name(...)`, where the type of the target has that method here."""
    if name not in METHODS.get(type(target), ()):
        raise CodeRefused(f"{kind(target)} has no method {name!r:.40} here")
    meter.weigh(*args, *named.values())
    meter.step(1 + size(target) // 16)
    if name == "replace" and len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
        meter.made(size(target) + (target.count(args[0]) + 1) * size(args[1]))
    elif name == "join" and args and isinstance(args[0], (str, list, tuple, dict)):
        meter.made(sum(size(one) for one in args[0]) + len(args[0]) * size(target))
    elif name in ("remove", "index", "count"):
        meter.weigh(target)
    elif name in ("strip", "lstrip", "rstrip") and args:
        # each letter of the one is looked for among those of the other
        meter.step(size(target) * size(args[0]) // 16)
    elif name in ("extend", "update") and args:
        meter.made(size(args[0]))
    else:
        meter.made(size(target) if name in ("split", "splitlines", "keys", "values", "items", "copy") else 1)
    result = getattr(target, name)(*args, **named)
    return result if isinstance(result, PLAIN) else list(result)
