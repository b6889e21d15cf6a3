"""CoD-Deploy without an end: an agent that solves one task after another and keeps its context in a store.

agent = DeployedAgent(Setting(env=env, mechanism=HintContext(), sampler=sampler), ContextStore("state"))
episode = agent.solve(task)
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from msgspec import structs

from cod_lightning.beginnings import num_alike
from cod_lightning.contexts.base import Stored, beside
from cod_lightning.deployment.store import ContextStore, ContextVersion, StoredEpisode
from cod_lightning.engines.scripted import Recorded
from cod_lightning.errors import ConfigError, DataError, EnvironmentFailure, note_fault
from cod_lightning.lifecycles import Agent, Ask, Program, Written
from cod_lightning.rollout.episode import run_solve_episode
from cod_lightning.rollout.lifecycle import Life
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import Episode, EpisodeKind, EpisodeStatus, Pack, Split, Task, Turn

_Keep = Callable[[float, Episode], None]
_OTHER = object()
"""In place of the specs of tasks that are over or to come."""


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
        self._resumed = False
        self._left: tuple[str | None, Any] = (None, None)
        """The state that the latest episode left, as it was dumped and as it is."""
        self._written: Episode | None = None
        """A text that was stored before the process died, and whose task was not."""

    def resume(self, tasks: list[Task]) -> None:
        """Bring the environment to where the store's episodes left it, and finish what was begun.

        `tasks` are those of the stored solve episodes, in order.
        """
        last, left = None, enumerate(tasks)
        for last in self.store.episodes():
            if last.episode.kind is EpisodeKind.SOLVE:
                position, task = next(left)
                if last.episode.position != position:  # as many earlier ones are made of it
                    said = f"the record of task {position} is that of another, {last.episode.position}"
                    raise DataError(f"{self.store.path} is damaged ({said}). Restore a copy, or name another --state.")
                self._replay(task, last)
        self._resumed = True
        if last is not None and last.episode.kind is EpisodeKind.SOLVE:
            self._finish(last, tasks[-1])
        elif last is not None and last.episode.kind is EpisodeKind.WRITE:
            self._written = last.episode

    def solve(self, task: Task) -> Episode:
        """Solve the task and do what the program has after it; returns the solve episode."""
        assert self._resumed or not self.store.num_solved(), "the store holds earlier tasks; call resume() first"
        self._resumed = True
        played = self._play(task, self.store.num_solved())
        solved = next((one for one in played if one.kind is EpisodeKind.SOLVE), None)
        if solved is None:
            raise _broken(self.setting.program, "a program that solves every task in `deploy`, which has no last one")
        return solved

    def close(self) -> None:
        """Close the environment; where that fails, the log says so."""
        try:
            asyncio.run(self.life.close())
        except EnvironmentFailure as error:
            note_fault(error)

    def _finish(self, last: StoredEpisode, task: Task) -> None:
        """What the program has after a task that was stored before the process died."""
        if last.episode.reward is None:
            return
        state = self._state()
        self._play(task, last.episode.position, structs.replace(last.episode, state_before=state, state_after=state))

    def _play(self, task: Task, position: int, solved: Episode | None = None) -> list[Episode]:
        """What the program has at this task, each episode in the store as it ends; with `solved`, what comes after that."""
        life = self.life
        life.name, life.index, life.position, life.tasks = f"deploy/{task.id}", 0, position, {position: task}
        life.state = self._state() if solved is None else solved.state_after
        if position or solved is not None:
            life.described = life.state
        before, after = ([Task(id=str(n), seed=n, spec=_OTHER) for n in of] for of in (range(position), [position + 1]))
        pack = Pack(id="deploy", split=Split.TRAIN, world_seed=0, tasks=(*before, task, *after))
        here = _OneTask(life, position, solved, self._written, partial(self._keep, task))
        self._written = None

        async def run() -> None:
            life.begin()
            with contextlib.suppress(_Later):
                await self.setting.program(cast(Agent, here), pack)
            await asyncio.gather(*life.forks)
            life.forks.clear()

        asyncio.run(run())
        return here.played

    def _keep(self, task: Task, began: float, episode: Episode) -> None:
        """Store an episode that has ended, with the state that it leaves, where that is not the one that was there."""
        left = episode.status is not EpisodeStatus.FAILED
        changed = episode.kind is EpisodeKind.UPDATE or episode.state_after != episode.state_before
        dumped = beside(self.setting.mechanism, Stored).dump(episode.state_after) if left and changed else None
        self.store.add(task.id, episode, began, dumped)
        self._left = self._left if dumped is None else (dumped, episode.state_after)
        self._on_episode(episode)

    def _state(self, version: ContextVersion | None = None) -> Any:
        """The state of this version of the context, or of the current one."""
        kept, mechanism = version or self.store.current(), self.setting.mechanism
        if not kept.state:
            return mechanism.empty()
        return self._left[1] if kept.state == self._left[0] else beside(mechanism, Stored).load(kept.state)

    def _replay(self, task: Task, stored: StoredEpisode) -> None:
        """Play a task again with its responses: environment and mechanism are deterministic, or not those of then."""
        episode, env = stored.episode, self.life.env
        if episode.reward is None:
            return
        assert env is not None, "an agent lives in one environment"
        state = self._state(self.store.version(stored.context_version))
        name, setting = f"replay of task {episode.position}", _recorded(self.setting, episode)
        again = asyncio.run(run_solve_episode(env, task, state, setting, name, episode.position))
        seen, shown = ([*(turn.observation for turn in one.turns), one.feedback] for one in (episode, again))
        if shown != seen:
            raise DataError(
                f"task {episode.position} in {self.store.path} was played in another world than this one: at turn "
                f"{num_alike(shown, seen)} it says "
                f"something else{f' ({again.error})' if again.error else ''}. Use the parameters and the version of then, or a new "
                "--state."
            )


class _Later(Exception):
    """The program is at the task after this one."""


def _recorded(setting: Setting, episode: Episode) -> Setting:
    """The setting in which the policy says once more what it, or another one with tokens and a window of its own, said in this
    episode."""
    chat = setting.sampler.chat

    def said(turn: Turn) -> Turn:
        if chat.decode(turn.action_ids) == turn.response:
            return turn
        ids = (*chat.encode(turn.response), chat.stop_id)
        return structs.replace(turn, action_ids=ids, behaviour_logprobs=(0.0,) * len(ids))

    engine = Recorded([said(turn) for turn in episode.turns])
    return replace(setting, sampler=replace(setting.sampler, engine=engine, window=sys.maxsize), by_kind={})


def _earlier(kind: EpisodeKind, position: int) -> Episode:
    """An episode that was played before, whose outcome no longer matters."""
    return Episode(kind=kind, position=position, status=EpisodeStatus.COMPLETED, reward=0.0, success=False)


class _OneTask(Agent):
    """The agent at one task of a lifecycle without a last one: earlier tasks were played, with outcomes that no longer matter."""

    sibling = 0

    def __init__(self, life: Life, position: int, solved: Episode | None, written: Episode | None, keep: _Keep) -> None:
        self._life, self._here, self._solved, self._written, self._keep = life, position, solved, written, keep
        self._position = 0
        """Of the next solve episode."""
        self.played: list[Episode] = []

    async def solve(self, task: Task, **how: Any) -> Episode:
        position, self._position = self._position, self._position + 1
        if self._is_over(position, task):
            own = self._solved if position == self._here else None
            return own or _earlier(EpisodeKind.SOLVE, position)
        began = time.time()
        episode = await self._life.solve(task, **how)
        self._add(began, episode)
        return episode

    async def ask(self, task: Task, ask: Ask, **how: Any) -> Written:
        if self._is_over(self._position, task):
            return Written(_earlier(EpisodeKind.WRITE, self._position), None)
        life, known, self._written = self._life, self._written, None
        began = time.time()
        if known is None:
            written = await life.ask(task, ask, **how)
            self._add(began, written.episode)
            return written
        life.failed = known.status is EpisodeStatus.FAILED
        setting, life.setting = life.setting, _recorded(life.setting, known)
        written = await life.ask(task, ask, **how)
        life.setting = setting
        self.played.append(known)
        return written

    async def rewrite(self, solved: Episode, **how: Any) -> Episode | None:
        if solved.position < self._here:
            self._life.index += self._life.setting.mechanism.updates
            return None
        began = time.time()
        if (episode := await self._life.rewrite(solved, **how)) is not None:
            self._add(began, episode)
        return episode

    def fork(self, *how: Any, **more: Any) -> None:
        if self._position == self._here and self._solved is None:
            self._life.fork(*how, **more)

    async def attempts(self) -> Sequence[Episode]:
        return await self._life.attempts()

    def _is_over(self, position: int, task: Task) -> bool:
        """Whether what the program has up to this solve episode was played already. Raises `_Later` at the next task."""
        if (position == self._here) == (task.spec is _OTHER):
            raise _broken(
                self._life.setting.program,
                "a program with one solve episode a task in `deploy`, followed by a rewrite at most",
            )
        if position > self._here:
            raise _Later
        over = position < self._here or self._solved is not None
        self._life.index += over
        return over

    def _add(self, began: float, episode: Episode) -> None:
        if any((one.kind, one.position) == (episode.kind, episode.position) for one in self.played):
            raise _broken(self._life.setting.program, f"a program with one {episode.kind} episode a task in `deploy`")
        if episode.status is not EpisodeStatus.SKIPPED or episode.kind is EpisodeKind.SOLVE:
            self._keep(began, episode)
            self.played.append(episode)


def _broken(program: Program, expected: str) -> ConfigError:
    return ConfigError("data.program", type(program).__name__, expected, "Choose another.")
