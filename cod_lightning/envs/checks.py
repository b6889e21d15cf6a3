"""Checks of parameters that worlds share; each failure is a `ConfigError` with the key that was typed."""

import inspect
from collections.abc import Sequence
from typing import Any

from cod_lightning.errors import ConfigError, check_at_least, check_between

_LARGEST_PACK = 10_000


def check_choice(key: str, value: str, choices: Sequence[str]) -> None:
    """Raise unless the value is one of the choices; the first one is the default.

    >>> check_choice("data.env.protocol", "compakt", ("natural", "compact"))
    Traceback (most recent call last):
    cod_lightning.errors.ConfigError: data.env.protocol is compakt; expected natural or compact. Leave it out for natural.
    """
    if value not in choices:
        raise ConfigError(key, value, " or ".join(choices), f"Leave it out for {choices[0]}.")


def check_share(key: str, value: float, remedy: str) -> None:
    """Raise unless the value lies in [0, 1]; NaN does not."""
    check_between(key, value, 0, 1, remedy)


def check_in(key: str, value: int, low: int, high: int, remedy: str) -> None:
    """Raise unless the whole number is one of low..high."""
    if not low <= value <= high:
        raise ConfigError(key, value, f"in {low}..{high}", remedy)


def check_span(
    low_key: str, low: float, high_key: str, high: float, least: float, most: float, remedy: str, *, above: bool = False
) -> None:
    """Raise unless least <= low <= high <= most (least < low, if `above`); NaN does not."""
    if not least <= low <= high <= most or (above and low == least):
        expected = f"{least} {'<' if above else '<='} {low_key} ({low}) <= {high_key} <= {most}"
        raise ConfigError(f"data.env.{high_key}", high, expected, remedy)


def check_turns(max_turns: int, remedy: str) -> None:
    """Raise unless a task has a turn."""
    check_at_least("data.env.max_turns", max_turns, 1, remedy)


def check_num_tasks(key: str, value: int, *, least: int = 1) -> None:
    """Raise unless a pack of that many tasks can be drawn, played and kept whole."""
    if not least <= value <= _LARGEST_PACK:
        expected = f"in {least}..{_LARGEST_PACK:,}, since a pack is drawn, played and kept whole"
        raise ConfigError(key, value, expected, "4 is usual; `deploy` lives through any number of tasks.")


def check_unused(world: type, where: str, **values: Any) -> None:
    """Raise for a parameter, of a world's class or of what declares its parameters, that has no effect there, unless it is the
    default."""
    declared = inspect.signature(world).parameters
    for key, value in values.items():
        if value != (default := declared[key].default):
            remedy = f"Leave it out: {where} it changes nothing."
            raise ConfigError(f"data.env.{key}", value, f"{default}, its default, {where}", remedy)
