"""CoD-Deploy without an end: an agent that solves one task after another and keeps its context in a store.

agent = DeployedAgent(Setting(env=env, mechanism=HintContext(), sampler=sampler), ContextStore("state"))
episode = agent.solve(task)
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile
from typing import Any

from msgspec import structs

from cod_lightning.deployment.store import ContextStore, ContextVersion, StoredEpisode
from cod_lightning.engines.scripted import Recorded
from cod_lightning.errors import DataError, EnvironmentFailure, note_fault
from cod_lightning.lifecycles import OutlineStep, outline
from cod_lightning.rollout.episode import run_solve_episode
from cod_lightning.rollout.lifecycle import Life
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Task


class DeployedAgent:
    """One agent in one environment: solve, write down what was learned, use it next time, for as long as there are tasks.

    It runs the loop of `rollout.lifecycle`, with three differences: it has no last task, so every task is followed by what the
    program has after it; a failure costs its task and not the tasks that follow; and whatever has ended is in the store before
    anything else begins. An agent whose process died goes on where it was: it first updates the context for a task that ended
    without that, and replays the earlier tasks to the environment, for environments that carry something over.

    Args:
        setting: The environment, the context mechanism, the policy and the program.
        store: Where episodes and contexts are kept.
        on_episode: Called with every episode as it is stored.
    """

    def __init__(
        self, setting: Setting, store: ContextStore, on_episode: Callable[[Episode], None] = lambda episode: None
    ) -> None:
        self.setting, self.store, self._on_episode = setting, store, on_episode
        self.life = Life(setting, "deploy", env=setting.env)
        self.life.known = store.num_solved() > 0
        self._resumed = False
        self._left: tuple[str | None, Any] = (None, None)
        """The state that the latest episode left, as it was dumped and as it is."""

    @property
    def context(self) -> str:
        """What the next task will begin with, as text."""
        return self.store.current().text

    def resume(self, tasks: list[Task]) -> None:
        """Bring the environment to where the store's episodes left it, and finish what was begun.

        `tasks` are those of the stored solve episodes, in order.
        """
        last, left = None, iter(tasks)
        for last in self.store.episodes():
            if last.episode.kind is EpisodeKind.SOLVE:
                self._replay(next(left), last)
        self._resumed = True
        if last is not None and last.episode.kind is EpisodeKind.SOLVE:
            self._finish(last, tasks[-1])

    def solve(self, task: Task) -> Episode:
        """Solve the task and do what the program has after it; returns the solve episode."""
        assert self._resumed or not self.store.num_solved(), "the store holds earlier tasks; call resume() first"
        self._resumed = True
        position = self.store.num_solved()
        return self._play(self._steps(position), task)[0]

    def close(self) -> None:
        """Close the environment; where that fails, the log says so."""
        try:
            asyncio.run(self.life.close())
        except EnvironmentFailure as error:
            note_fault(error)

    def _steps(self, position: int) -> list[tuple[int, OutlineStep]]:
        """The episodes of a task, each with its index in a lifecycle in which other tasks follow."""
        steps = outline(self.setting.program, position + 2, self.setting.mechanism.updates)
        return [(index, one) for index, one in enumerate(steps) if one.position == position]

    def _finish(self, last: StoredEpisode, task: Task) -> None:
        """What the program has after a task that was stored before the process died."""
        if last.episode.status is EpisodeStatus.FAILED:
            return
        state = self._state()
        solved = structs.replace(last.episode, state_before=state, state_after=state)
        self._play(self._steps(last.episode.position)[1:], task, solved)

    def _play(self, steps: list[tuple[int, OutlineStep]], task: Task, solved: Episode | None = None) -> list[Episode]:
        """These episodes of one task, each in the store as it ends."""
        life, played = self.life, list[Episode]()
        life.name, life.state = f"deploy/{task.id}", self._state()
        life.tasks = {step.position: task for _, step in steps}

        async def run() -> None:
            life.begin()
            for index, (kind, position, _) in steps:
                began, life.index = time.time(), index
                if kind is EpisodeKind.SOLVE:
                    life.position = position
                    episode = await life.solve(task)
                else:
                    latest = played[-1] if played else solved
                    assert latest is not None, "an update before any task"
                    episode = await life.rewrite(latest)
                if episode is None or episode.status is EpisodeStatus.SKIPPED:
                    continue
                dumped = self._dumped(episode)
                self.store.add(task.id, episode, began, dumped)
                self._left = self._left if dumped is None else (dumped, episode.state_after)
                self._on_episode(episode)
                played.append(episode)

        asyncio.run(run())
        return played

    def _state(self, version: ContextVersion | None = None) -> Any:
        """The state of this version of the context, or of the current one."""
        kept, mechanism = version or self.store.current(), self.setting.mechanism
        if kept.state:
            return self._left[1] if kept.state == self._left[0] else mechanism.load(kept.state)
        return mechanism.adopt(kept.text) if kept.text else mechanism.empty()

    def _dumped(self, episode: Episode) -> str | None:
        """The state that the episode leaves; None where it leaves the state that was there."""
        left = episode.status is not EpisodeStatus.FAILED
        changed = episode.kind is EpisodeKind.UPDATE or episode.state_after != episode.state_before
        return self.setting.mechanism.dump(episode.state_after) if left and changed else None

    def _replay(self, task: Task, stored: StoredEpisode) -> None:
        """Play a task again with its responses: environment and mechanism are deterministic, or not those of then."""
        episode, env = stored.episode, self.life.env
        if episode.status is EpisodeStatus.FAILED:
            return
        assert env is not None, "an agent lives in one environment"
        recorded = replace(self.setting.sampler, engine=Recorded(episode.turns))
        setting = replace(self.setting, sampler=recorded, by_kind={})
        state = self._state(self.store.version(stored.context_version))
        name = f"replay of task {episode.position}"
        again = asyncio.run(run_solve_episode(env, task, state, setting, name, episode.position))
        seen, shown = ([*(turn.observation for turn in one.turns), one.feedback] for one in (episode, again))
        if shown != seen:
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(shown, seen, strict=False)))
            raise DataError(
                f"task {episode.position} in {self.store.path} was played in another world than this one: at turn {same} it says "
                f"something else{f' ({again.error})' if again.error else ''}. Use the parameters and the version of then, or a new "
                "--state."
            )
