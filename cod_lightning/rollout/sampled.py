"""A turn from the engine, within its time, and what goes wrong there."""

import asyncio

from cod_lightning.errors import ConfigError, EngineFailure, TurnTimeout
from cod_lightning.rollout.boundaries import blame, crossing
from cod_lightning.rollout.dialogue import Dialogue
from cod_lightning.types import Turn


async def sampled_turn(dialogue: Dialogue, most_tokens: int | None = None) -> Turn:
    """The policy's next response, within the time that a turn may take, of no more than `most_tokens`."""
    sampler, limit_s = dialogue.sampler, dialogue.sampler.deadlines.turn_s
    sampler.liveness.at(dialogue.identity, "engine")
    try:
        async with asyncio.timeout(limit_s):
            try:
                turn = await dialogue.turn(most_tokens)
            except ConfigError:
                raise
            except BaseException as error:
                blame(EngineFailure, error, sampler.engine)
    except TimeoutError:
        engine = type(sampler.engine).__name__
        raise TurnTimeout(f"{engine} did not answer in data.deadlines.turn_s={limit_s:g} s") from None
    sampler.liveness.at(dialogue.identity, "environment")
    return turn


def close(dialogue: Dialogue) -> None:
    """Give the engine's place back."""
    crossing(EngineFailure, dialogue.close, dialogue.sampler.engine)
