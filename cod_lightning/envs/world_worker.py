"""The worker process of a `ProcessWorld`: it receives a world's state, applies one call, and returns the new state.

It keeps no world between two calls, so that any worker can serve any of them and killing one affects no other lifecycle. What it
answers is data: nothing that a world made is unpickled outside, but a pack that was drawn and a task that was proposed.
"""

import contextlib
import os
import pickle
import queue
import resource
import signal
import socket
import struct
import sys
import threading
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from cod_lightning.envs.base import Proposals, TextEnv, Tools, Traits, beside
from cod_lightning.errors import ConfigError, EnvironmentFailure, described
from cod_lightning.terminal import CleanStream
from cod_lightning.types import EpisodeStatus

_MOST_FRAMES, _LONGEST_TRACEBACK = 20, 8000
"""The last frames of a traceback, and its last characters."""
LENGTH = struct.Struct("!Q")
"""Before each message: its bytes."""
_STATE_SHARE = 1 / 64
"""Of the memory of a call that a world's state may take, since the state of every lifecycle waits outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a world."""

    state: bytes
    """The world before, pickled."""
    method: str
    """`sample_pack`, `reset`, `step`, `proposed` or `close`."""
    options: dict[str, Any]
    """Its keyword arguments."""
    memory_bytes: int | None = None
    """That it may take beyond what the worker takes without a world; null: no limit."""


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a call gave, and all that can be asked of the world until the next one."""

    error: str = ""
    """What was raised, as an in-process rollout would word it; the rest is without meaning then."""
    traceback: str = ""
    """Where it was raised, for `lifecycles/faults.log`."""
    out_of_memory: bool = False
    """Whether that was for want of memory."""
    result: tuple[Any, ...] = ()
    """What the method returned, without its info."""
    state: bytes = b""
    """The world after, pickled."""
    rules: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    results: tuple[str, ...] = ()
    success: bool = False
    status: EpisodeStatus | None = None
    """None while the task goes on."""
    offer: str = ""
    """After `reset`."""
    max_turns: int = 0
    traits: Traits = Traits()


def main(control: int) -> None:
    """Answer what comes from the socket with this descriptor until the other side is gone.

    First comes a world, pickled, which is read once for the modules that it needs: the first call then takes no longer than others.
    Signals are left to the parent, which finishes its work or kills its workers, with all that their worlds have started.
    What a world prints is cleaned, as in the process of the run.
    """
    sys.stdout, sys.stderr = CleanStream(sys.stdout), CleanStream(sys.stderr)  # pyright: ignore[reportAttributeAccessIssue]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    connection, asked = socket.socket(fileno=control), queue.SimpleQueue[bytes]()
    threading.Thread(target=_receive, args=(connection, asked), daemon=True).start()

    def send(result: CallResult) -> None:
        content = msgspec.msgpack.encode(result)
        connection.sendall(LENGTH.pack(len(content)) + content)

    try:
        pickle.loads(asked.get())
    except Exception as error:
        send(CallResult(error=described(error)))
        return
    send(CallResult())
    before, own, home = _data_bytes(), os.getpid(), os.getcwd()
    while True:
        call = pickle.loads(asked.get())
        with contextlib.chdir(home):
            result = answered(call, before)
        signal.alarm(0)
        if os.getpid() != own:  # a process that the world has forked
            os._exit(1)
        send(result)


def _receive(connection: socket.socket, asked: "queue.SimpleQueue[bytes]") -> None:
    """Take what is asked; without the other side, end this process and what it has started, even while a world hangs."""
    with contextlib.suppress(OSError), connection.makefile("rb") as file:
        while len(length := file.read(LENGTH.size)) == LENGTH.size:
            asked.put(file.read(*LENGTH.unpack(length)))
    os.killpg(0, signal.SIGKILL)


def answered(call: Call, before: int = 0) -> CallResult:
    """`answer` within the memory of the call, for a process that had taken so many bytes `before` the first."""
    if call.memory_bytes is not None:
        _set_memory(before + call.memory_bytes)
    try:
        found = answer(call)
        if call.memory_bytes is not None and len(found.state) > call.memory_bytes * _STATE_SHARE:
            raise MemoryError
        return found
    except MemoryError:
        return CallResult(error="MemoryError", out_of_memory=True)
    finally:
        _set_memory(resource.RLIM_INFINITY)  # room for the answer


def _set_memory(limit: int) -> None:
    """As far as the limit that this process was started with allows."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _data_bytes() -> int:
    """What the system counts against `RLIMIT_DATA`; 0 where it does not say."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")), 0)


def answer(call: Call) -> CallResult:
    """Move the world on by one call."""
    try:
        env: TextEnv = pickle.loads(call.state)
        if call.method == "sample_pack":
            return CallResult(result=(_drawn(env, call.options),))
        if call.method == "close":
            env.close()
            return CallResult()
        called = beside(env, Proposals) if call.method == "proposed" else env
        given = getattr(called, call.method)(**call.options)
        if call.method == "proposed":  # a task has objects of the world's own
            given = pickle.dumps(given, pickle.HIGHEST_PROTOCOL), {}
        shown, *outcome, _ = given
        result: list[Any] = [shown if call.method == "proposed" else _plain(shown)]
        over = False
        if call.method == "step":
            reward, terminated, truncated = outcome
            result += [float(reward), bool(terminated), bool(truncated)]
            over = result[2] or result[3]
        traits, tools = env.traits, beside(env, Tools)
        low, high = traits.reward_range
        found = CallResult(
            result=tuple(result),
            state=pickle.dumps(env, pickle.HIGHEST_PROTOCOL),
            rules=_plain(env.rules),
            tools=tuple(tools.schemas),
            results=tuple(map(_plain, tools.results)),
            success=bool(env.success),
            status=EpisodeStatus(env.status) if over else None,
            offer=_plain(beside(env, Proposals).offer) if call.method == "reset" else "",
            max_turns=int(env.max_turns),
            traits=replace(traits, reward_range=(float(low), float(high))),
        )
        msgspec.msgpack.encode(found)  # raises for objects of the world's own
        return found
    except MemoryError:
        raise
    except EnvironmentFailure as error:
        return CallResult(error=described(error).removeprefix(f"{type(error).__name__}: "))
    except Exception as error:
        trace = "".join(traceback.format_exception(error, limit=-_MOST_FRAMES))[-_LONGEST_TRACEBACK:]
        return CallResult(error=described(error), traceback=trace)


def _drawn(env: TextEnv, options: dict[str, Any]) -> bytes:
    """The pack, or what the world says of it to the person who typed the config, pickled."""
    try:
        made = env.sample_pack(**options)
    except ConfigError as refusal:
        made = refusal
    return pickle.dumps(made, pickle.HIGHEST_PROTOCOL)


def _plain(text: object) -> Any:
    """The text. Raises `EnvironmentFailure` for anything else, worded as where the world is in the process of the run."""
    if not isinstance(text, str):
        raise EnvironmentFailure(f"it showed a {type(text).__name__}, not a string")
    return str.__str__(text)
