"""The paper's figure in code: solve, write down what was learned, use it next time. Read this file first.

    solve_0 -> update_0 -> solve_1 -> update_1 -> ... -> solve_{N-1}          (or another order: `plans.py`)

One agent, one environment, N tasks. Between tasks the agent rewrites its context; nothing else passes from task to task (unless
the environment itself carries something over). Source: arXiv 2606.20002, the loop of CoD-Deploy and CoD-Train alike. Rollouts,
evaluations, deployment and `play` all run it.
"""

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ContextFailure, EnvironmentFailure, described, note_fault
from cod_lightning.plans import PlannedEpisode, planned
from cod_lightning.rollout.attempts import Branching, BranchPoint, start_attempts
from cod_lightning.rollout.boundaries import FAULTS, crossing, failed_at_the_end
from cod_lightning.rollout.deadlines import pack_ends
from cod_lightning.rollout.entries import EntriesOf, entry_events
from cod_lightning.rollout.episode import after_feedback, run_solve_episode, run_update_episode
from cod_lightning.rollout.proposals import run_propose_episode
from cod_lightning.rollout.setting import OWN_CONTEXTS, ContextSource, Setting, Shown
from cod_lightning.types import Attempt, Episode, EpisodeKind, EpisodeStatus, Lifecycle, Pack, Task


class Life:
    """One agent in an environment of its own: what it carries from episode to episode.

    Args:
        setting: What it shares with other lifecycles; `setting.env` is copied unless `env` is named.
        name: Identity of the lifecycle, which keys its sampling noise.
        contexts: Where its contexts come from.
        env: The environment to go on in.
    """

    def __init__(
        self, setting: Setting, name: str, contexts: ContextSource = OWN_CONTEXTS, env: TextEnv | None = None
    ) -> None:
        self.setting, self.name, self.contexts, self.env = setting, name, contexts, env
        self.state: Any = None
        """Of the context; None before the first episode."""
        self.begins_with: str | None = None
        """The context before the first episode, as its mechanism dumped it; None: the empty one."""
        self.previous: Any = None
        """The context's state before the latest update."""
        self.rewritten = False
        """Whether the latest episode was an update."""
        self.solved: Episode | None = None
        """The latest solve episode."""
        self.entries_of = EntriesOf(setting.mechanism)
        self.known = False
        """Whether the events of earlier episodes say what the context holds."""
        self.begun: Any = None
        """The context's state before the first solve episode of the present task, which the others of it begin with, too."""
        self.proposed: dict[int, Task] = {}
        """By position of a proposal: the task that it made, or the pack's own where it made none."""
        self.ends: float | None = None
        """When the episodes have to be over, by the clock of the event loop."""
        self.failed = False
        """Whether an episode has failed since they began."""
        self.before_task: Callable[[int, int], None] = lambda index, position: None
        """Called with the index and the position of each solve episode that is about to begin."""

    def begin(self) -> None:
        """Episodes begin now, of a pack or of a task."""
        self.ends, self.failed = pack_ends(self.setting.sampler.deadlines), False

    async def episode(self, index: int, planned: PlannedEpisode, tasks: Sequence[Task] | dict[int, Task]) -> Episode:
        """The planned episode of index e, with the tasks by position; it is skipped after one that failed."""
        kind, position = planned
        if self.failed or self.contexts.skips(kind, position):
            return Episode(kind=kind, position=position, status=EpisodeStatus.SKIPPED)
        play = self._solve if kind is EpisodeKind.SOLVE else self._update
        if kind is EpisodeKind.PROPOSE:
            play = self._propose
        place = self.setting.plan.task_of(position)
        try:
            if self.env is None:
                self.env = crossing(EnvironmentFailure, lambda: copy.deepcopy(self.setting.env))
            if self.state is None:
                mechanism, kept = self.setting.mechanism, self.begins_with
                first = mechanism.empty if kept is None else partial(mechanism.load, kept)
                self.state = self.previous = crossing(ContextFailure, first, mechanism)
            task = self.proposed.get(place) or tasks[place]
            episode = self._followed(await play(self.env, index, position, task))
        except FAULTS as error:  # outside an episode's own boundaries: a copy, a first state, what a reward taught
            note_fault(error)
            episode = Episode(kind=kind, position=position, status=EpisodeStatus.FAILED, error=described(error))
        self.failed = episode.status is EpisodeStatus.FAILED
        return episode

    async def _propose(self, env: TextEnv, index: int, position: int, task: Task) -> Episode:
        who = f"{self.name}.{index}"
        episode, made = await run_propose_episode(env, task, self.state, self.setting, who, position, self.ends)
        chosen = made or task
        earlier = [one.spec for one in self.proposed.values()]
        again = crossing(EnvironmentFailure, lambda: chosen.spec in earlier, env)
        self.proposed[position] = replace(chosen, repeat=again)
        return await self.setting.scored(episode, task)

    async def _solve(self, env: TextEnv, index: int, position: int, task: Task) -> Episode:
        if self.setting.plan.task_of(position) == position:
            self.begun = self.state
        elif self.state is not self.begun:
            self.state, self.known = self.begun, False
        if self.contexts.provided is not None:
            self.state = self.contexts.provided[position]
        self.before_task(index, position)
        who, shown = f"{self.name}.{index}", self.contexts.shown
        solved = await run_solve_episode(env, task, self.state, self.setting, who, position, self.ends, shown)
        self.solved = after_feedback(self.setting.mechanism, await self.setting.scored(solved, task))
        self.state, self.rewritten = self.solved.state_after, False
        return self.solved

    async def _update(self, env: TextEnv, index: int, position: int, task: Task) -> Episode:
        assert self.solved is not None, "an update before any task"
        updated = await run_update_episode(env, self.solved, self.setting, f"{self.name}.{index}", self.ends)
        updated = await self.setting.scored(updated, task)
        self.previous, self.state, self.rewritten = self.state, updated.state_after, True
        return updated

    def _followed(self, episode: Episode) -> Episode:
        """The episode with what it had to do with the entries of the context."""
        known, shown = self.known and self.contexts.provided is None, self.contexts.shown is Shown.OWN
        events = entry_events(self.entries_of, episode, known=known, shown=shown)
        self.known = True
        return structs.replace(episode, entries=events)

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
    life.begins_with = pack.context
    beside: list[asyncio.Future[list[Attempt]]] = []
    if branching is not None:
        life.before_task = lambda index, position: beside.append(
            start_attempts(branching, BranchPoint(pack, sibling, index, position), life)
        )
    episodes: list[Episode] = []
    try:
        life.begin()
        for index, one in enumerate(planned(setting.plan, len(pack), setting.mechanism.updates)):
            episode = await life.episode(index, one, pack.tasks)
            episodes.append(episode)
            if episode.status is not EpisodeStatus.SKIPPED:
                setting.monitor.episode(episode)
    finally:
        try:
            life.close()
        except EnvironmentFailure as error:
            episodes = failed_at_the_end(episodes, error)
    if any(episode.kind is EpisodeKind.PROPOSE for episode in episodes):
        episodes = await setting.paid(episodes, pack)
    attempts = [attempt for begun in beside for attempt in await begun]
    lifecycle = Lifecycle(pack_id=pack.id, sibling=sibling, episodes=tuple(episodes), attempts=tuple(attempts))
    setting.monitor.lifecycle(lifecycle)
    return lifecycle
