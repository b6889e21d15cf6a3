"""Checks of parameters that worlds share; each failure is a `ConfigError` with the key that was typed."""

import inspect
from typing import Any

from cod_lightning.errors import ConfigError

_LARGEST_PACK = 10_000


def check_span(
    low_key: str, low: float, high_key: str, high: float, least: float, most: float, remedy: str, *, above: bool = False
) -> None:
    """Raise unless least <= low <= high <= most (least < low, if `above`); NaN does not."""
    if not least <= low <= high <= most or (above and low == least):
        expected = f"{least} {'<' if above else '<='} {low_key} ({low}) <= {high_key} <= {most}"
        raise ConfigError(f"data.env.{high_key}", high, expected, remedy)


def exhausted(key: str, value: object, wanted: str, draws: int, remedy: str) -> ConfigError:
    """What to raise where so many draws, under parameters that are each in order, gave nothing that is wanted."""
    return ConfigError(f"data.env.{key}", value, f"{wanted}; none was found in {draws:,} draws", remedy)


def check_num_tasks(key: str, value: int) -> None:
    """Raise unless a pack of that many tasks can be drawn, played and kept whole."""
    if not 1 <= value <= _LARGEST_PACK:
        expected = f"in 1..{_LARGEST_PACK:,}, since a pack is drawn, played and kept whole"
        raise ConfigError(key, value, expected, "4 is usual; `deploy` lives through any number of tasks.")


def check_unused(world: type, where: str, **values: Any) -> None:
    """Raise for a parameter, of a world's class or of what declares its parameters, that has no effect there, unless it is the
    default."""
    declared = inspect.signature(world).parameters
    for key, value in values.items():
        if value != (default := declared[key].default):
            remedy = f"Leave it out: {where} it changes nothing."
            raise ConfigError(f"data.env.{key}", value, f"{default}, its default, {where}", remedy)
