"""One agent at work in one environment, and its lifecycle through a pack, as a program says (`cod_lightning/lifecycles/`).

    solve_0 -> update_0 -> solve_1 -> update_1 -> ... -> solve_{N-1}          (the paper's, `lifecycles/cod.py`)

One agent, one environment, N tasks. Between tasks the agent rewrites its context; nothing else passes from task to task (unless
the environment itself carries something over). Source: arXiv 2606.20002, the loop of CoD-Deploy and CoD-Train alike. Rollouts,
evaluations, deployment and `play` all run it.
"""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from numbers import Real
from typing import Any

from msgspec import structs

from cod_lightning.contexts.base import ContextEntry, ContextMechanism, Entries, Stored, beside
from cod_lightning.envs.base import TextEnv
from cod_lightning.errors import ConfigError, ContextFailure, EnvironmentFailure, answering, described, note_fault
from cod_lightning.lifecycles import Ask, Program, Shows, Written, check_ends
from cod_lightning.rewards.base import LARGEST, is_name, scored, summed
from cod_lightning.rollout.between_tasks import run_update_episode, run_write_episode
from cod_lightning.rollout.boundaries import FAULTS, blame, checked_text, closed, crossing, failed_at_the_end
from cod_lightning.rollout.episode import after_feedback, run_solve_episode
from cod_lightning.rollout.setting import Setting
from cod_lightning.types import EntryEvent, EntryEventKind, Episode, EpisodeKind, EpisodeStatus, Lifecycle, Pack, Task

_LONGEST_NAME = 200


class Life:
    """One agent in an environment of its own: what it carries from episode to episode (`lifecycles.Agent`).

    Args:
        setting: What it shares with other lifecycles; `setting.env` is copied unless `env` is named.
        name: Identity of the lifecycle, which keys its sampling noise.
        env: The environment to go on in.
        sibling: Number among the lifecycles of its pack.
    """

    def __init__(self, setting: Setting, name: str, env: TextEnv | None = None, sibling: int = 0) -> None:
        self.setting, self.name, self.env, self.sibling = setting, name, env, sibling
        self.episodes: list[Episode] = []
        self.index = self.position = 0
        """Of the next episode, and of the next solve episode."""
        self.state: Any = None
        """Of the context; None before the first episode."""
        self.begins_with: str | None = None
        """The context before the first episode, as its mechanism dumped it; None: the empty one."""
        self.previous: Any = None
        """The context's state before the latest update."""
        self.described: Any = None
        """The context's state that the events of earlier episodes describe."""
        self.tasks: dict[int, Task] = {}
        """What was solved, by position."""
        self.failed = self.playing = False
        """Whether an episode has failed since they began, and whether one is being played."""
        self.forks: list[asyncio.Task[Episode]] = []

    def begin(self) -> None:
        """Episodes begin now, of a pack or of a task."""
        self.failed, self.episodes = False, []

    async def solve(
        self,
        task: Task,
        *,
        shown: Any = None,
        context: Any = None,
        note: str = "",
        compared_with: str = "",
    ) -> Episode:
        position = self.position
        self.position += 1

        async def play(env: TextEnv, who: str) -> Episode:
            self.tasks[position] = task
            if context is not None:
                self.state = context
            solved = await run_solve_episode(env, task, self.state, self.setting, who, position, shown, note)
            solved = after_feedback(self.setting.mechanism, await self._scored(solved, task))
            self.state = solved.state_after
            return solved

        return await self._episode(EpisodeKind.SOLVE, position, play, shown, compared_with)

    def skip(self, kind: EpisodeKind) -> Episode:
        self.position += kind is EpisodeKind.SOLVE
        return self._append(Episode(kind=kind, position=self.position - 1, status=EpisodeStatus.SKIPPED))

    async def rewrite(self, solved: Episode, *, skip: bool = False, compared_with: str = "") -> Episode | None:
        if not self.setting.mechanism.updates:
            return None
        if skip:
            return self.skip(EpisodeKind.UPDATE)

        async def play(env: TextEnv, who: str) -> Episode:
            updated = await run_update_episode(env, solved, self.setting, who)
            updated = await self._scored(updated, self.tasks[solved.position])
            self.previous, self.state = updated.state_before, updated.state_after
            return updated

        return await self._episode(EpisodeKind.UPDATE, solved.position, play, compared_with=compared_with)

    async def ask(
        self, task: Task, ask: Ask, *, shown: Any = None, context: Any = None, compared_with: str = ""
    ) -> Written:
        value: Any = None

        async def play(env: TextEnv, who: str) -> Episode:
            nonlocal value
            state = self.state if context is None else context
            episode, value = await run_write_episode(ask, env, task, state, self.setting, who, self.position, shown)
            return await self._scored(episode, task)

        return Written(await self._episode(EpisodeKind.WRITE, self.position, play, shown, compared_with), value)

    def pay(
        self, episode: Episode, came_of: Sequence[Episode], weights: Sequence[float] = (), /, **parts: float
    ) -> None:
        if not all(is_name(name) and isinstance(value, Real) for name, value in parts.items()):
            raise _broken(
                self.setting.program, "a program that pays numbers under names of letters, digits, '.', '_', '-'"
            )
        if not all(isinstance(weight, Real) and abs(weight) <= LARGEST for weight in weights):
            raise _broken(self.setting.program, "a program that weighs rewards with finite numbers")
        index = {id(one): e for e, one in enumerate(self.episodes)}
        counted = (episode, *(came_of if weights else ()))
        if any(id(one) not in index and one.status is not EpisodeStatus.SKIPPED for one in counted):
            raise _broken(self.setting.program, "a program that pays an episode of its own lifecycle, and once")
        if id(episode) not in index:  # which a control leaves out
            return
        own = {index[id(episode)]: 1.0}
        for one, weight in zip(came_of, weights, strict=bool(weights)):
            if id(one) in index:
                own[index[id(one)]] = own.get(index[id(one)], 0.0) + float(weight)
        paid = structs.replace(episode, weights=tuple(own.items()))
        parts = {name: float(value) for name, value in parts.items()}
        lost = [one for one in came_of if one.reward is None]
        if episode.reward is not None and lost:  # one that was skipped has no fault of its own
            error = next((one.error for one in (*lost, *self.episodes) if one.error), "")
            paid = structs.replace(paid, status=EpisodeStatus.FAILED, reward=None, success=None, error=error)
        elif episode.reward is not None:
            name = {EpisodeKind.SOLVE: "world", EpisodeKind.UPDATE: "context"}.get(episode.kind)
            before = episode.parts or ({name: episode.reward} if name else {})
            paid = summed(paid, before | parts, [])
        self.episodes = [paid if one is episode else one for one in self.episodes]

    async def attempts(self) -> Sequence[Episode]:
        every = [await begun for begun in self.forks]
        return [one for one in every if one.trained and one.position == self.position - 1]

    def fork(self, task: Task, context: Shows = "own", note: str = "", compared_with: str = "") -> None:
        self._check_name(compared_with)
        if self.failed:
            return
        position = self.position
        who = f"{self.name}.{self.index}+{sum(of.get_name() == str(self.index) for of in self.forks)}"
        env: Any
        state: Any = None
        try:
            self._start()
            kept = {"own": self.state, "previous": self.previous}
            state = kept[context]
            env = crossing(EnvironmentFailure, lambda: copy.deepcopy(self.env))
        except FAULTS as error:
            env = error

        async def play() -> Episode:
            if isinstance(env, BaseException):
                raise env
            try:
                episode = await run_solve_episode(env, task, state, self.setting, who, position, note=note)
                return after_feedback(self.setting.mechanism, await self._scored(episode, task))
            finally:
                await closed(env, self.setting.sampler.deadlines.episode_s)

        async def attempt() -> Episode:
            episode = await _guarded(EpisodeKind.SOLVE, position, compared_with, play)
            return structs.replace(episode, trained=context == "own")

        self.forks.append(asyncio.create_task(attempt(), name=str(self.index)))

    async def _episode(
        self,
        kind: EpisodeKind,
        position: int,
        play: Callable[[TextEnv, str], Awaitable[Episode]],
        shown: Any = None,
        compared_with: str = "",
    ) -> Episode:
        """The next episode, appended; it is skipped after one that failed."""
        self._check_name(compared_with)
        if self.failed:
            skipped = Episode(kind=kind, position=position, status=EpisodeStatus.SKIPPED, compared_with=compared_with)
            return self._append(skipped)
        if self.playing:
            raise _broken(self.setting.program, "a program that waits for each episode before it begins the next")

        async def played() -> Episode:
            self._start()
            assert self.env is not None
            episode = await play(self.env, f"{self.name}.{self.index}")
            mechanism, known = self.setting.mechanism, episode.state_before is self.described
            events = entry_events(mechanism, episode, known=known, shown=shown is None)
            self.described = episode.state_after
            return structs.replace(episode, entries=events)

        self.playing = True
        episode = await _guarded(kind, position, compared_with, played)
        self.playing = False
        self.failed = episode.status is EpisodeStatus.FAILED
        self.setting.monitor.episode(episode)
        return self._append(episode)

    def _check_name(self, compared_with: Any) -> None:
        if type(compared_with) is not str or len(compared_with) > _LONGEST_NAME:
            expected = f"a program that compares by a text of at most {_LONGEST_NAME:,} letters"
            raise _broken(self.setting.program, f"{expected}, not a {type(compared_with).__name__}")

    def _append(self, episode: Episode) -> Episode:
        check_ends(len(self.episodes))
        self.index += 1
        self.episodes.append(episode)
        return episode

    def _start(self) -> None:
        """Before the first episode, make the environment and the context. Raises one of `FAULTS`."""
        if self.env is None:
            self.env = crossing(EnvironmentFailure, lambda: copy.deepcopy(self.setting.env))
        if self.state is None:
            mechanism, kept = self.setting.mechanism, self.begins_with
            first = mechanism.empty if kept is None else partial(beside(mechanism, Stored).load, kept)
            self.state = self.previous = crossing(ContextFailure, first, mechanism)

    async def _scored(self, episode: Episode, task: Task) -> Episode:
        """The episode that was played, with all parts of its reward but those that compare siblings."""
        rewards = self.setting.rewards
        return await scored(episode, task, rewards, self.setting.sampler.deadlines.reward_s) if rewards else episode

    async def close(self) -> None:
        """Close the environment. Raises `EnvironmentFailure` where that fails."""
        if self.env is not None:
            await closed(self.env, self.setting.sampler.deadlines.episode_s)


async def _guarded(
    kind: EpisodeKind, position: int, compared_with: str, play: Callable[[], Awaitable[Episode]]
) -> Episode:
    """The episode, which has failed where something fails outside its own boundaries: a copy, a first state, a reward."""
    try:
        episode = await play()
    except FAULTS as error:
        note_fault(error)
        episode = Episode(kind=kind, position=position, status=EpisodeStatus.FAILED, error=described(error))
    return structs.replace(episode, compared_with=compared_with) if compared_with else episode


def entry_events(mechanism: ContextMechanism, episode: Episode, *, known: bool, shown: bool) -> tuple[EntryEvent, ...]:
    """What an episode that took place had to do with the entries of its context, read off the states before and after it.

    Raises `ContextFailure`.

    Args:
        mechanism: Whose states the episode has.
        episode: With its states.
        known: Whether the events of earlier episodes say what the state held before.
        shown: Whether a task was shown its context.
    """
    kept = _entries(mechanism, episode.state_before)
    before = {one.key: one for one in kept if not one.gone}
    events = [] if known else [EntryEvent(EntryEventKind.HELD, one.key, one.text) for one in before.values()]
    if episode.reward is None:
        return tuple(events)
    found = kept if episode.state_after is episode.state_before else _entries(mechanism, episode.state_after)
    after = {one.key: one for one in found if not one.gone}
    gone = {one.key: one for one in found if one.gone and one.key not in after}
    if shown and episode.kind is EpisodeKind.SOLVE:
        seen = [one.key for one in (*after.values(), *gone.values()) if one.shown and one.key in before]
        events += [EntryEvent(EntryEventKind.SHOWN, key) for key in seen]
    for key, one in after.items():
        if key not in before:
            events.append(EntryEvent(EntryEventKind.CAME, key, one.text))
        elif before[key].text != one.text:
            events.append(EntryEvent(EntryEventKind.CHANGED, key, one.text))
    for key in (*before, *(key for key in gone if key not in before)):
        if key not in after:
            events.append(EntryEvent(EntryEventKind.GONE, key, gone[key].gone if key in gone else ""))
    return tuple(events)


def _entries(mechanism: ContextMechanism, state: Any) -> tuple[ContextEntry, ...]:
    """The entries of a state. Raises `ContextFailure`."""
    try:
        entries = tuple(beside(mechanism, Entries).entries(state))
        for text in (text for one in entries for text in (one.key, one.text, one.gone)):
            checked_text(text, mechanism, ContextFailure)
    except BaseException as error:
        blame(ContextFailure, error, mechanism)
    return entries


def _broken(program: Program, expected: str) -> ConfigError:
    return ConfigError("data.program", type(program).__name__, expected, "Correct the program.")


async def run_lifecycle(pack: Pack, sibling: int, setting: Setting) -> Lifecycle:
    """One agent through the pack, with the attempts beside it."""
    agent = Life(setting, f"{pack.id}#{sibling}", sibling=sibling)
    agent.begins_with = pack.context
    try:
        with answering(partial(_broken, setting.program), "a program that raises nothing"):
            await setting.program(agent, pack)
            if agent.playing:
                raise _broken(setting.program, "a program that waits for each episode before it ends")
    finally:
        episodes = agent.episodes
        try:
            await agent.close()
        except EnvironmentFailure as error:
            episodes = failed_at_the_end(episodes, error)
    attempts = [await begun for begun in agent.forks]
    solved = {one.position: e for e, one in enumerate(episodes) if one.kind is EpisodeKind.SOLVE}
    if not (solved or agent.failed):
        raise _broken(setting.program, "a program that solves a task")
    if not {one.position for one in attempts} <= solved.keys():
        raise _broken(setting.program, "a program that solves each task beside which it begins an attempt")
    placed = (structs.replace(one, parent=solved[one.position]) for one in attempts)
    lifecycle = Lifecycle(pack_id=pack.id, sibling=sibling, episodes=(*episodes, *placed))
    setting.monitor.lifecycle(lifecycle)
    return lifecycle
