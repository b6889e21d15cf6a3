"""The far side of a `ProcessWorld`: a process that is handed a world's state, moves it on by one call, and hands it back.

It remembers nothing between two calls, so that any worker can serve any world and killing one costs nobody else anything.
"""

import multiprocessing
import os
import pickle
import signal
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import EnvironmentFailure
from cod_lightning.types import EpisodeStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a world."""

    state: bytes
    """The world before, pickled."""
    method: str
    """`reset` or `step`."""
    options: dict[str, Any]
    """Its keyword arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a call gave, and all that can be asked of the world until the next one."""

    error: str = ""
    """What was raised, as an in-process rollout would word it; the rest is without meaning then."""
    result: tuple[Any, ...] = ()
    """What the method returned."""
    state: bytes = b""
    """The world after, pickled."""
    rules: str = ""
    success: bool = False
    status: EpisodeStatus | None = None
    """None while the task goes on."""
    max_turns: int = 0
    reward_range: tuple[float, float] = (0.0, 1.0)


def serve(connection: Connection, prototype: bytes) -> None:
    """Answer calls until the other side is gone.

    `prototype` is unpickled once, for the modules that it needs: the first call then takes no longer than others. Signals are
    the parent's business: it finishes what it does, or kills its workers.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_die_with_the_parent, daemon=True).start()
    try:
        pickle.loads(prototype)
    except Exception as error:
        connection.send(Answer(error=f"{type(error).__name__}: {error}"))
        return
    connection.send(Answer())
    while True:
        try:
            call = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(answer(call))


def answer(call: Call) -> Answer:
    """Move the world on by one call."""
    try:
        env: TextEnv = pickle.loads(call.state)
        result = getattr(env, call.method)(**call.options)
        over = call.method == "step" and bool(result[2] or result[3])
        return Answer(
            result=result,
            state=pickle.dumps(env, pickle.HIGHEST_PROTOCOL),
            rules=env.rules,
            success=bool(env.success),
            status=env.status if over else None,
            max_turns=env.max_turns,
            reward_range=env.reward_range,
        )
    except EnvironmentFailure as error:
        return Answer(error=str(error))
    except Exception as error:
        return Answer(error=f"{type(error).__name__}: {error}")


def _die_with_the_parent() -> None:
    """Even while a world hangs."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
