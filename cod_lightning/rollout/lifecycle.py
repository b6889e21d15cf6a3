"""The paper's figure in code: solve, write down what was learned, use it next time. Read this file first.

    solve_0 -> update_0 -> solve_1 -> update_1 -> ... -> solve_{N-1}          (or another order: `plans.py`)

One agent, one environment, N tasks. Between tasks the agent rewrites its context; nothing else passes from task to task (unless
the environment itself carries something over). Source: arXiv 2606.20002, the loop of CoD-Deploy and CoD-Train alike. Rollouts,
evaluations, deployment and `play` all run it.
"""

import asyncio
import copy
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

from msgspec import structs

from cod_lightning.contexts.base import ContextMechanism
from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ContextFailure, EnvironmentFailure
from cod_lightning.plans import PlannedEpisode, planned
from cod_lightning.rollout.attempts import Branching, BranchPoint, start_attempts
from cod_lightning.rollout.boundaries import FAULTS, crossing, described
from cod_lightning.rollout.deadlines import pack_ends
from cod_lightning.rollout.episode import run_solve_episode, run_update_episode
from cod_lightning.rollout.setting import OWN_CONTEXTS, ContextSource, Setting
from cod_lightning.types import Attempt, Episode, EpisodeKind, EpisodeStatus, Lifecycle, Pack, Task


class Life:
    """One agent in an environment of its own: what it carries from episode to episode.

    Args:
        setting: What it shares with other lifecycles; `setting.env` is copied unless `env` is named.
        name: Identity of the lifecycle, which keys its sampling noise.
        contexts: Where its contexts come from.
        env: The environment to go on in.
        state: The context's state to go on with; None: the mechanism's empty one.
    """

    def __init__(
        self,
        setting: Setting,
        name: str,
        contexts: ContextSource = OWN_CONTEXTS,
        env: TextEnv | None = None,
        state: Any = None,
    ) -> None:
        self.setting, self.name, self.contexts = setting, name, contexts
        self.env, self.state = env, state
        self.previous: Any = None
        """The context's state before the latest update."""
        self.solved: Episode | None = None
        """The latest solve episode."""
        self.ends: float | None = None
        """When the episodes have to be over, by the clock of the event loop."""
        self.before_task: Callable[[int, int], None] = lambda index, position: None
        """Called with the index and the position of each solve episode that is about to begin."""

    async def episodes(
        self, order: Sequence[tuple[int, PlannedEpisode]], tasks: dict[int, Task]
    ) -> AsyncGenerator[Episode, None]:
        """The planned episodes as they end, each with its index e; after a failure the rest is skipped."""
        self.ends = pack_ends(self.setting.sampler.deadlines)
        failed = False
        for index, (kind, position) in order:
            if failed or self.contexts.skips(kind, position):
                yield Episode(kind=kind, position=position, status=EpisodeStatus.SKIPPED)
                continue
            try:
                self._begin()
                if kind is EpisodeKind.SOLVE:
                    episode = await self._solve(index, position, tasks[position])
                else:
                    episode = await self._update(index, tasks[position])
            except FAULTS as error:  # outside an episode's own boundaries: a copy, a first state, what a reward taught
                episode = Episode(kind=kind, position=position, status=EpisodeStatus.FAILED, error=described(error))
            failed = episode.status is EpisodeStatus.FAILED
            yield episode

    def _begin(self) -> None:
        """Copy the environment and make the first state, unless both are there."""
        if self.env is None:
            self.env = crossing(EnvironmentFailure, lambda: copy.deepcopy(self.setting.env))
        if self.state is None:
            self.state = self.previous = _asked(self.setting.mechanism, self.setting.mechanism.empty)

    async def _solve(self, index: int, position: int, task: Task) -> Episode:
        assert self.env is not None, "_begin() has not run"
        if self.contexts.provided is not None:
            self.state = self.contexts.provided[position]
        self.before_task(index, position)
        solved = await run_solve_episode(
            self.env,
            task,
            self.state,
            mechanism=self.setting.mechanism,
            sampler=self.setting.sampler,
            identity=f"{self.name}.{index}",
            position=position,
            pack_ends=self.ends,
            shown=self.contexts.shown,
        )
        solved = await self.setting.scored(solved, task)
        if solved.status is not EpisodeStatus.FAILED:
            solved = _after_feedback(self.setting.mechanism, solved)
        self.solved, self.state = solved, solved.state_after
        return solved

    async def _update(self, index: int, task: Task) -> Episode:
        assert self.env is not None, "_begin() has not run"
        assert self.solved is not None, "an update before any task"
        updated = await run_update_episode(
            self.env,
            self.solved,
            mechanism=self.setting.mechanism,
            sampler=self.setting.sampler,
            identity=f"{self.name}.{index}",
            pack_ends=self.ends,
        )
        updated = await self.setting.scored(updated, task)
        self.previous, self.state = self.state, updated.state_after
        return updated

    def close(self) -> None:
        """Close the environment. Raises `EnvironmentFailure` where that fails."""
        if self.env is not None:
            crossing(EnvironmentFailure, self.env.close)


async def run_lifecycle(
    pack: Pack,
    sibling: int,
    setting: Setting,
    *,
    contexts: ContextSource = OWN_CONTEXTS,
    branching: Branching | None = None,
) -> Lifecycle:
    """One agent through the pack.

    With `branching`, some tasks are attempted again beside it, from the moment at which they began.
    """
    life = Life(setting, f"{pack.id}#{sibling}", contexts)
    order = list(enumerate(planned(setting.plan, len(pack))))
    beside: list[asyncio.Future[list[Attempt]]] = []

    def branch(index: int, position: int) -> None:
        assert branching is not None
        fresh = index > 0 and order[index - 1][1].kind is EpisodeKind.UPDATE
        point = BranchPoint(pack_id=pack.id, sibling=sibling, index=index, task=pack.tasks[position], position=position)
        states = branching.states(point, life, fresh=fresh)
        beside.append(start_attempts(states, point, life))

    if branching is not None:
        life.before_task = branch
    episodes: list[Episode] = []
    try:
        async for episode in life.episodes(order, dict(enumerate(pack.tasks))):
            episodes.append(episode)
            if episode.status is not EpisodeStatus.SKIPPED:
                setting.monitor.episode(episode)
    finally:
        try:
            life.close()
        except EnvironmentFailure as error:
            episodes = _failed_at_the_end(episodes, error)
    attempts = [attempt for begun in beside for attempt in await begun]
    lifecycle = Lifecycle(pack_id=pack.id, sibling=sibling, episodes=tuple(episodes), attempts=tuple(attempts))
    setting.monitor.lifecycle(lifecycle)
    return lifecycle


def _after_feedback(mechanism: ContextMechanism, solved: Episode) -> Episode:
    """The solve episode with the state that its reward left."""
    if type(mechanism).feedback is ContextMechanism.feedback:
        return solved
    state = _asked(mechanism, lambda: mechanism.feedback(solved.state_after, solved))
    return structs.replace(solved, state_after=state, context_after=_asked(mechanism, lambda: mechanism.text(state)))


def _asked(mechanism: ContextMechanism, call: Callable[[], Any]) -> Any:
    return crossing(ContextFailure, call, f"{type(mechanism).__name__} raised ")


def _failed_at_the_end(episodes: list[Episode], error: EnvironmentFailure) -> list[Episode]:
    """The episodes, the last one that took place failed: an environment that cannot be closed may have said anything."""
    last = max((e for e, one in enumerate(episodes) if one.status is not EpisodeStatus.SKIPPED), default=None)
    if last is not None and episodes[last].status is not EpisodeStatus.FAILED:
        failed = structs.replace(
            episodes[last], status=EpisodeStatus.FAILED, reward=None, success=None, error=described(error)
        )
        return [*episodes[:last], failed, *episodes[last + 1 :]]
    return episodes
