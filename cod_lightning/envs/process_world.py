"""A world that computes in worker processes: many at a time, and none can block or end the run."""

import copy
import os
import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium

from cod_lightning.envs.async_world import AsyncWorld
from cod_lightning.envs.base import Proposals, Stepped, TextEnv, Tools, Traits, Variants, beside
from cod_lightning.envs.own_loop import own_loop
from cod_lightning.envs.process_pool import PendingCall
from cod_lightning.envs.worker_pool import WorkerPool
from cod_lightning.envs.world_worker import Call, CallResult
from cod_lightning.envs.wrapped import WrappedVariants, WrappedWorld, delegated, innermost
from cod_lightning.errors import ConfigError
from cod_lightning.ranges import Count, Positive
from cod_lightning.types import EpisodeStatus, Pack, Split, Task


class ProcessTools(Tools["ProcessWorld"]):
    """Those of the present task."""

    @property
    def schemas(self) -> Sequence[dict[str, Any]]:
        latest = self.env.latest
        return latest.tools if isinstance(latest, CallResult) else beside(latest, Tools).schemas

    @property
    def results(self) -> Sequence[str]:
        latest = self.env.latest
        return latest.results if isinstance(latest, CallResult) else beside(latest, Tools).results


class ProcessProposals(Proposals["ProcessWorld"]):
    """Those of the present task, read in a worker."""

    @property
    def offer(self) -> str:
        latest = self.env.latest
        return latest.offer if isinstance(latest, CallResult) else beside(latest, Proposals).offer

    def proposed(self, response: str, task: Task) -> Task | None:
        """In a worker, whose answer is the task, pickled."""
        (made, _) = self.env.run("proposed", response=response, task=task)
        return pickle.loads(made)


class ProcessVariants(WrappedVariants["ProcessWorld"]):
    """Those of the world inside, each with workers of its own where it carries nothing from task to task."""

    def without_world_memory(self) -> TextEnv:
        own = self.env
        inside = beside(own.world, Variants).without_world_memory()
        sizes = own.num_workers, own.step_s, own.memory_gb
        return own if inside is own.world else ProcessWorld(inside, *sizes)


class ProcessWorld(WrappedWorld):
    """Calls `sample_pack`, `reset`, `step`, `proposed` and `close` of a slow or fragile world in worker processes, all else here.

    The state of each lifecycle's world travels: a worker gets it pickled, moves it on by one call and returns it. So a world that
    hangs, crashes or takes too much costs its own lifecycle and one process, which is replaced, and episodes are those that the
    inner world would give. A call costs about a millisecond more, and the world must be picklable, of classes in modules.

    Args:
        world: The world inside.
        num_workers: Most processes at a time; null: as many as the machine has cores.
        step_s: Seconds that such a call may take; a process that takes longer is killed. Waiting for a free one does not
            count.
        memory_gb: GiB of memory that a call may take, beyond what a worker takes without a world, and 1/64 of it the world's state,
            of which every lifecycle keeps one; null: no limit. Processes that the world starts itself each have it
            anew. Linux only.
    """

    companions = (ProcessTools, ProcessProposals, ProcessVariants)

    def __init__(
        self,
        world: TextEnv,
        num_workers: Count | None = None,
        step_s: Positive = 60.0,
        memory_gb: Positive | None = 4.0,
    ) -> None:
        super().__init__(world)
        if own_loop(world) is not None or isinstance(innermost(world), AsyncWorld) or world.traits.shows_images:
            expected = "a world in text alone that makes its steps in this process"
            raise ConfigError("data.env.world", type(world).__name__, expected, "Name it as data.env itself.")
        self.memory_gb = memory_gb
        self.num_workers, self.step_s = num_workers or os.cpu_count() or 1, step_s
        self._pool = WorkerPool(self.num_workers, _pickled(world))
        self._state: bytes | None = None
        self._answer: CallResult | None = None
        self._pending: PendingCall | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "ProcessWorld":
        """The same state of the same world, served by the same workers."""
        twin = copy.copy(self)
        twin._pending = None
        return twin

    @property
    def latest(self) -> TextEnv | CallResult:
        """The source of facts about the present task."""
        return self.world if self._answer is None else self._answer

    @property
    def rules(self) -> str:
        return self.latest.rules

    @property
    def success(self) -> bool:
        return self.latest.success

    @property
    def status(self) -> EpisodeStatus:
        status = self.latest.status
        assert status is not None, "the task goes on"
        return status

    @property
    def traits(self) -> Traits:
        """Those of the present task; blocking, since it waits for a process."""
        return replace(self.latest.traits, blocking=True)

    def sample_pack(self, *, split: Split, index: int, num_tasks: int, seed: int = 0) -> Pack:
        """In a worker, whose answer is the pack, pickled, or the `ConfigError` that the world raised. Raises as `reset` does."""
        options = {"split": split, "index": index, "num_tasks": num_tasks, "seed": seed}
        made = pickle.loads(self._called("sample_pack", _pickled(self.world), options, PendingCall()).result[0])
        if isinstance(made, ConfigError):
            raise made
        return made

    max_turns = delegated("latest.max_turns")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """In a worker. Raises `WorldHung`, `WorldDied` and `WorldOutOfMemory`."""
        return self.run("reset", seed=seed, options=options)

    def step(self, action: str) -> Stepped:
        return self.run("step", action=action)

    def close(self) -> None:
        """Kill the worker of a call in progress, if any; then, in a worker, the world's own `close`. Raises as `reset` does."""
        if self._pending is not None:
            self._pending.cancel()
        if self._state is not None and _closes(self.world):
            self._called("close", self._state, {}, PendingCall())

    def run(self, method: str, **options: Any) -> Any:
        """What a method of the world returns, called in a worker. Raises as `reset` does."""
        state = _pickled(self.world) if self._state is None else self._state
        pending = self._pending = PendingCall()
        answer = self._called(method, state, options, pending)
        self._pending, self._state, self._answer = None, answer.state, answer
        return (*answer.result, {})

    def _called(self, method: str, state: bytes, options: dict[str, Any], pending: PendingCall) -> CallResult:
        most = None if self.memory_gb is None else int(self.memory_gb * 2**30)
        call = Call(state=state, method=method, options=options, memory_bytes=most)
        return self._pool.run(call, self.step_s, pending)


def _closes(world: TextEnv) -> bool:
    """Whether it has anything to close."""
    while isinstance(world, WrappedWorld):
        world = world.world
    return type(world).close is not gymnasium.Env.close


def _pickled(world: TextEnv) -> bytes:
    try:
        return pickle.dumps(world, pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        expected = f"a world that can be pickled ({type(error).__name__}: {error})"
        raise ConfigError("data.env.world", type(world).__name__, expected, "Give it __getstate__.") from error
