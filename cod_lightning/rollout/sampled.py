"""A turn from the engine, within its time, and what goes wrong there."""

import asyncio

from cod_lightning.errors import ConfigError, EngineFailure, TurnTimeout
from cod_lightning.rollout.boundaries import blame, crossing
from cod_lightning.rollout.dialogue import Dialogue
from cod_lightning.types import Turn


async def sampled_turn(dialogue: Dialogue, most_tokens: int | None = None) -> Turn:
    """The policy's next response, within the time that a turn may take, of no more than `most_tokens`."""
    sampler, limit = dialogue.sampler, None
    sampler.liveness.at(dialogue.identity, "engine")
    try:
        if sampler.deadlines.turn_s is None:
            turn = await dialogue.turn(most_tokens)
        else:
            limit = asyncio.timeout(sampler.deadlines.turn_s)
            async with limit:
                turn = await dialogue.turn(most_tokens)
    except ConfigError:
        raise
    except BaseException as error:
        if limit is not None and limit.expired() and isinstance(error, TimeoutError):
            engine, limit_s = type(sampler.engine).__name__, sampler.deadlines.turn_s
            raise TurnTimeout(f"{engine} did not answer in data.deadlines.turn_s={limit_s:g} s") from None
        blame(EngineFailure, error, sampler.engine)
    sampler.liveness.at(dialogue.identity, "environment")
    return turn


def close(dialogue: Dialogue) -> None:
    """Give the engine's place back."""
    crossing(EngineFailure, dialogue.close, dialogue.sampler.engine)
