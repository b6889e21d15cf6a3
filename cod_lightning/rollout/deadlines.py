"""Time limits of a turn, an episode, a pack and a reward; what exceeds one costs its lifecycle."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, fields

from cod_lightning.errors import ConfigError, EpisodeTimeout, PackTimeout

_NO_LIMIT = nullcontext()
"""For an episode without a limit; one object for all, since it is entered in every episode."""


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """Seconds of wall clock, waiting in a queue of the engine or for a free worker process included; null: no limit.

    A lifecycle that exceeds a limit fails (counted by name) and frees its place in the engine; all others go on.
    Deadlines are checked where a lifecycle waits: for an engine, or for a world in a process or thread of its own. A world
    that computes in this process has to be wrapped in `ProcessWorld` to be broken off.
    """

    turn_s: float | None = None
    """For an engine to answer one turn."""
    episode_s: float | None = None
    """For one episode, a solve or an update."""
    pack_s: float | None = None
    """For one lifecycle through a whole pack."""
    reward_s: float | None = 300.0
    """For one part of an episode's reward, a judge's answer for example."""
    stall_s: float | None = 1800.0
    """With no turn and no step of a world finished anywhere for so long, the process writes down where every thread is and exits
    with code 70, to be resumed; null: it waits forever."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ConfigError(f"data.deadlines.{field.name}", value, "seconds above 0, or null", "Null: no limit.")


def pack_ends(deadlines: Deadlines) -> float | None:
    """When a lifecycle that begins now has to be over, by the clock of the event loop."""
    return None if deadlines.pack_s is None else asyncio.get_running_loop().time() + deadlines.pack_s


def episode_limit(deadlines: Deadlines, ends: float | None) -> AbstractAsyncContextManager[None]:
    """One timer for a whole episode, at its own end or at its pack's (`ends`), whichever comes first; none where neither is."""
    if deadlines.episode_s is None and ends is None:
        return _NO_LIMIT
    return _limited(deadlines, ends)


@asynccontextmanager
async def _limited(deadlines: Deadlines, ends: float | None) -> AsyncIterator[None]:
    now = asyncio.get_running_loop().time()
    own = math.inf if deadlines.episode_s is None else now + deadlines.episode_s
    first = min(own, math.inf if ends is None else ends)
    limit = asyncio.timeout_at(first)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        if first == own:
            raise EpisodeTimeout(f"not over after data.deadlines.episode_s={deadlines.episode_s:g} s") from None
        raise PackTimeout(f"not over after data.deadlines.pack_s={deadlines.pack_s:g} s") from None
