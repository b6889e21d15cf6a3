"""Functions that code may call by name. Each is given the running program, whose meter it charges."""

from collections.abc import Callable
from typing import Any

from cod_lightning.envs.apps.sandbox.bounds import CodeError, CodeRefused, checked

MOST_ITEMS = 5_000


def _range(program: Any, *ends: int) -> list[int]:
    if not all(isinstance(end, int) for end in ends):
        raise CodeError("TypeError: range takes whole numbers")
    values = range(*ends)
    if len(values) > MOST_ITEMS:
        raise CodeRefused(f"more than {MOST_ITEMS} items")
    program.meter.made(len(values))
    return list(values)


def _sorted(program: Any, values: Any, key: Any = None, reverse: bool = False) -> list[Any]:
    items = program.items(values)
    keys = items if key is None else [program.called(key, [item], {}) for item in items]
    program.meter.weigh(keys)
    program.meter.step(len(items))
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=bool(reverse))
    return [items[n] for n in order]


def _best(which: Callable[..., Any]) -> Callable[..., Any]:
    def best(program: Any, *values: Any, key: Any = None) -> Any:
        items = program.items(values[0]) if len(values) == 1 else list(values)
        if not items:
            raise CodeError("ValueError: there are no items")
        keys = items if key is None else [program.called(key, [item], {}) for item in items]
        program.meter.weigh(keys)
        return items[which(range(len(items)), key=keys.__getitem__)]

    return best


def _sum(program: Any, values: Any) -> Any:
    total: Any = 0
    for value in program.items(values):
        if not isinstance(value, (int, float)):
            raise CodeError("TypeError: sum is for numbers")
        total = checked(total + value)
    return total


def _print(program: Any, *values: Any) -> None:
    program.meter.weigh(*values)
    program.say(" ".join(value if isinstance(value, str) else program.written(value) for value in values))


def _text(program: Any, value: Any = "") -> str:
    program.meter.weigh(value)
    text = value if isinstance(value, str) else str(value)
    program.meter.made(len(text) // 8)
    return text


def _number(of: type) -> Callable[..., Any]:
    def number(program: Any, value: Any = 0) -> Any:
        if not isinstance(value, (str, int, float)) or (isinstance(value, str) and len(value) > 40):
            raise CodeError("TypeError: expected a number or a short text")
        return checked(of(value))

    return number


def _round(program: Any, value: Any, digits: Any = None) -> Any:
    if digits is not None and not (isinstance(digits, int) and abs(digits) <= 20):
        raise CodeError("ValueError: round takes at most 20 digits")
    return checked(round(value, digits))


def _zip(program: Any, *lists: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(program.items(one) for one in lists), strict=False))


def _length(program: Any, value: Any) -> int:
    if not isinstance(value, (str, list, tuple, dict)):
        raise CodeError("TypeError: it has no length")
    return len(value)


def _dict(program: Any, pairs: Any = (), **named: Any) -> dict[Any, Any]:
    items = list(pairs.items()) if isinstance(pairs, dict) else program.items(pairs)
    program.meter.weigh(items)
    return dict(items, **named)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": lambda program, value: checked(abs(value)),
    "all": lambda program, values: all(program.items(values)),
    "any": lambda program, values: any(program.items(values)),
    "bool": lambda program, value=False: bool(value),
    "dict": _dict,
    "enumerate": lambda program, values, start=0: [
        (checked(start) + n, v) for n, v in enumerate(program.items(values))
    ],
    "filter": lambda program, test, values: [v for v in program.items(values) if program.called(test, [v], {})],
    "float": _number(float),
    "int": _number(int),
    "len": _length,
    "list": lambda program, values=(): program.items(values),
    "map": lambda program, function, values: [program.called(function, [v], {}) for v in program.items(values)],
    "max": _best(max),
    "min": _best(min),
    "print": _print,
    "range": _range,
    "reversed": lambda program, values: program.items(values)[::-1],
    "round": _round,
    "sorted": _sorted,
    "str": _text,
    "sum": _sum,
    "tuple": lambda program, values=(): tuple(program.items(values)),
    "zip": _zip,
}
