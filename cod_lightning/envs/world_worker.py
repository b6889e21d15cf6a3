"""The worker process of a `ProcessWorld`: it receives a world's state, applies one call, and returns the new state.

It keeps nothing between two calls, so that any worker can serve any world and killing one affects no other lifecycle.
"""

import math
import multiprocessing
import os
import pickle
import resource
import signal
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import EnvironmentFailure
from cod_lightning.types import EpisodeStatus

_MOST_FRAMES, _LONGEST_TRACEBACK = 20, 8000
"""The last frames of a traceback, and its last characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a call of a world may take. Processes that the world starts itself each have as much."""

    memory_bytes: int | None = None
    """Beyond what the worker takes without a world; null: no limit."""
    cpu_s: float | None = None
    """Of all threads together; null: no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a world."""

    state: bytes
    """The world before, pickled."""
    method: str
    """`reset` or `step`."""
    options: dict[str, Any]
    """Its keyword arguments."""
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """What a call gave, and all that can be asked of the world until the next one."""

    error: str = ""
    """What was raised, as an in-process rollout would word it; the rest is without meaning then."""
    traceback: str = ""
    """Where it was raised, for `lifecycles/faults.log`."""
    out_of_memory: bool = False
    """Whether that was for want of memory."""
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
    left to the parent, which finishes its work or kills its workers.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_die_with_the_parent, daemon=True).start()
    try:
        pickle.loads(prototype)
    except Exception as error:
        connection.send(CallResult(error=f"{type(error).__name__}: {error}"))
        return
    connection.send(CallResult())
    before = _data_bytes()
    while True:
        try:
            call = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(answered(call, before))


def answered(call: Call, before: int = 0) -> CallResult:
    """`answer` within the limits of the call, for a process that had taken so many bytes `before` the first.

    The system kills this process by SIGXCPU where it computes for too long.
    """
    limits = call.limits
    if limits.cpu_s is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _set_soft(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + limits.cpu_s))
    if limits.memory_bytes is not None:
        _set_soft(resource.RLIMIT_DATA, before + limits.memory_bytes)
    try:
        return answer(call)
    except MemoryError:
        return CallResult(error="MemoryError", out_of_memory=True)
    finally:
        _set_soft(resource.RLIMIT_DATA, resource.RLIM_INFINITY)  # room for the answer


def _set_soft(which: int, limit: int) -> None:
    """As far as the limit that this process was started with allows."""
    hard = resource.getrlimit(which)[1]
    resource.setrlimit(which, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _data_bytes() -> int:
    """What the system counts against `RLIMIT_DATA`; 0 where it does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")), 0)


def answer(call: Call) -> CallResult:
    """Move the world on by one call."""
    try:
        env: TextEnv = pickle.loads(call.state)
        result = getattr(env, call.method)(**call.options)
        over = call.method == "step" and bool(result[2] or result[3])
        return CallResult(
            result=result,
            state=pickle.dumps(env, pickle.HIGHEST_PROTOCOL),
            rules=env.rules,
            success=bool(env.success),
            status=env.status if over else None,
            max_turns=env.max_turns,
            reward_range=env.reward_range,
        )
    except MemoryError:
        raise
    except EnvironmentFailure as error:
        return CallResult(error=str(error))
    except Exception as error:
        trace = "".join(traceback.format_exception(error, limit=-_MOST_FRAMES))[-_LONGEST_TRACEBACK:]
        return CallResult(error=f"{type(error).__name__}: {error}", traceback=trace)


def _die_with_the_parent() -> None:
    """Even while a world hangs."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
