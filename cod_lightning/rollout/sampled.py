"""A turn from the engine, within its time, and what goes wrong there."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from cod_lightning.errors import ConfigError, EngineFailure, TurnTimeout
from cod_lightning.rollout.boundaries import blame
from cod_lightning.rollout.dialogue import Dialogue
from cod_lightning.types import Turn


def sampled_turn(dialogue: Dialogue, most_tokens: int | None = None) -> Coroutine[Any, Any, Turn]:
    """The policy's next response, within the time that a turn may take, of no more than `most_tokens`."""
    limit_s = dialogue.sampler.deadlines.turn_s
    sampled = _sampled(dialogue, most_tokens)
    return sampled if limit_s is None else _sampled_within(limit_s, sampled, dialogue)


def close(dialogue: Dialogue) -> None:
    """Give the engine's place back."""
    try:
        dialogue.close()
    except BaseException as error:
        engine = dialogue.sampler.engine
        blame(EngineFailure, error, f"{type(engine).__name__} raised ")


async def _sampled_within(limit_s: float, sampled: Coroutine[Any, Any, Turn], dialogue: Dialogue) -> Turn:
    try:
        async with asyncio.timeout(limit_s):
            return await sampled
    except TimeoutError:
        engine = type(dialogue.sampler.engine).__name__
        raise TurnTimeout(f"{engine} did not answer in data.deadlines.turn_s={limit_s:g} s") from None


async def _sampled(dialogue: Dialogue, most_tokens: int | None) -> Turn:
    sampler = dialogue.sampler
    sampler.liveness.at(dialogue.identity, "engine")
    try:
        turn = await dialogue.turn(most_tokens)
    except ConfigError:
        raise
    except BaseException as error:
        blame(EngineFailure, error, f"{type(sampler.engine).__name__} raised ")
    sampler.liveness.at(dialogue.identity, "environment")
    return turn
